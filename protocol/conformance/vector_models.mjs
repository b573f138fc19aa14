// Cases of models.json: `input` to what is expected.

import { contentOf, describeFile } from "./model.mjs";
import { fromBytesStar, toHex } from "./vector_notation.mjs";

export const MODELS = {
  content({ tensors }) {
    const read = ({ values, ...tensor }) => ({ ...tensor, values: values.map((hex) => Buffer.from(hex, "hex").readFloatBE()) });
    return { content: toHex(contentOf(tensors.map(read))) };
  },
  file({ data }) {
    const { bytes, sha256, pieces } = describeFile(fromBytesStar(data));
    return { bytes, sha256: toHex(sha256), pieces: toHex(pieces) };
  },
};
