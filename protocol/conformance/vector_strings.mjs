// Cases of strings.json.

import { authorOf, awayAfter, noisePayload, parseAddress, peerOf, textOf, whichStays } from "./addresses.mjs";
import { readName, writeName } from "./names.mjs";
import { parseRunAddress, readInvitation, readJoin, tagOf, writeInvitation, writeJoin } from "./strings.mjs";
import { fromHex, toHex } from "./vector_notation.mjs";

const orNull = (value, show) => (value === null ? null : show(value));

function showContent({ runId, nodes, invitation, model, data, dataBytes }) {
  const shown = nodes.map(([address, author]) => ({ address, author: toHex(author) }));
  return { run_id: toHex(runId), nodes: shown, invitation: toHex(invitation), model, data, data_bytes: dataBytes };
}

export const STRINGS = {
  peer_id: ({ author }) => ({ peer: peerOf(fromHex(author)) }),
  author_of: ({ peer }) => ({ author: orNull(authorOf(peer), toHex) }),
  noise_payload: ({ secret_seed: seed, static_key: key }) => ({
    payload: toHex(noisePayload(fromHex(seed), fromHex(key))),
  }),
  stays: ({ own, other, older, newer }) => ({ stays: whichStays(fromHex(own), fromHex(other), older, newer) }),
  away: ({ bye }) => ({ seconds: awayAfter(bye) }),
  address: ({ text }) => ({ address: parseAddress(text) }),
  run_address: ({ text }) => ({
    address: orNull(parseRunAddress(text), ({ runId, nodes }) => ({
      run_id: runId,
      nodes: nodes.map(textOf),
    })),
  }),
  invite: ({ secret_seed: seed, signature, uses }) => ({
    text: writeInvitation(fromHex(seed), fromHex(signature), uses),
  }),
  invitation: ({ text }) => ({
    invitation: orNull(readInvitation(text), ({ secretSeed, signature, uses }) => ({
      secret_seed: toHex(secretSeed),
      signature: toHex(signature),
      ...(uses > 1 ? { uses } : {}),
    })),
  }),
  name: ({ secret_seed: seed, run_id: runId, seconds, name }) => ({
    text: writeName(fromHex(seed), fromHex(runId), seconds, name),
  }),
  read_name: ({ text, author, run_id: runId }) => ({ name: readName(text, fromHex(author), fromHex(runId)) }),
  join: ({ run_id: runId, nodes, invitation, model, data, data_bytes: dataBytes }) => ({
    text: writeJoin({
      runId: fromHex(runId),
      nodes: nodes.map(({ address, author }) => [address, fromHex(author)]),
      invitation: fromHex(invitation),
      model,
      data,
      dataBytes,
    }),
  }),
  read_join: ({ text }) => ({ content: orNull(readJoin(text), showContent) }),
  tag: ({ run_id: runId }) => ({ tag: tagOf(fromHex(runId)) }),
};
