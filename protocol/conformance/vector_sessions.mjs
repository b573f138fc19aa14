// Cases of frames.json, sessions.json and reach.json.

import { createHash } from "node:crypto";
import { FrameReader } from "./frames.mjs";
import { Answerer, readAnswer, writeAnswer } from "./reach.mjs";
import { Download, Session } from "./session.mjs";
import { asWritten, fromBytesStar, fromHex, toDecimal, toHex } from "./vector_notation.mjs";
import { Rejected } from "./verdicts.mjs";
import { decodeMessage } from "./wire.mjs";

/** The members that `action` adds to `found`, and its verdict. What was found before a rejection stays. */
function judged(found, action) {
  try {
    action(found);
    return { verdict: "ACCEPT", reason: null, ...found };
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return { verdict: "REJECT", reason: error.reason, ...found };
  }
}

export const FRAMES = {
  cut({ is_introduced: isIntroduced, pieces }, _, expected) {
    const reader = new FrameReader();
    reader.isIntroduced = isIntroduced;
    return judged({ messages: [] }, ({ messages }) => {
      for (const piece of pieces) {
        for (const data of reader.take(fromBytesStar(piece))) {
          messages.push(asWritten(data, expected.messages[messages.length]));
        }
      }
    });
  },
};

const sha256 = (data) => createHash("sha256").update(data).digest();

export const SESSIONS = {
  session({ role, hello, manifest, files, pieces, steps }, _, expected) {
    const [fileWith, pieceWith] = [files, pieces].map((listed) => {
      const held = listed.map((document) => fromBytesStar(document));
      return (hash) => held.find((document) => sha256(document).equals(hash));
    });
    const session = new Session(role, fromHex(hello), { manifest: fromBytesStar(manifest), fileWith, pieceWith });
    const begin = playStep(session, expected.begin, () => ({ said: session.firstWords, isHandedOn: false }));
    const played = steps.map((step, index) =>
      playStep(session, expected.steps[index], () => ("ask" in step ? ask(session) : hear(session, step.message))),
    );
    return { begin, steps: played };
  },
  parts({ document, total, sha256: digest, messages }) {
    const download = new Download(document, total, digest);
    const found = judged({}, () => {
      for (const message of messages) if (!download.take(decodeMessage(fromBytesStar(message)))) break;
    });
    return { ...found, is_whole: found.reason === null && download.isWhole, received: download.received };
  },
};

function ask(session) {
  return { said: session.askForPeers(), isHandedOn: false };
}

function hear(session, message) {
  const data = fromBytesStar(message);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  return session.take(Buffer.concat([length, data]));
}

function playStep(session, expected, action) {
  const found = judged({ said: [], is_handed_on: false }, (step) => {
    const { said, isHandedOn } = action();
    step.said = said.map((each, index) => showSaid(each, expected.said[index]));
    step.is_handed_on = isHandedOn;
  });
  return { ...found, is_over: session.isOver || found.verdict === "REJECT" };
}

function showSaid(said, expected) {
  return Buffer.isBuffer(said) ? asWritten(said, expected) : { bye: said ?? "" };
}

export const REACH = {
  answer({ question, host, from_port: port, unix_ms: unixMs, is_open: isOpen }) {
    const outcome = new Answerer(() => isOpen).outcome(fromHex(question), host, 0);
    return { answer: toHex(writeAnswer({ outcome, unixMs: BigInt(unixMs), host, port })) };
  },
  read({ answer }) {
    const found = readAnswer(fromHex(answer));
    if (found === null) return { answer: null };
    const { outcome, unixMs, host, port } = found;
    return { answer: { outcome, unix_ms: toDecimal(unixMs), host, port } };
  },
  dials({ questions }) {
    const dialled = [];
    let isOpen = false;
    const answerer = new Answerer((host, port) => {
      dialled.push([host, port]);
      return isOpen;
    });
    const outcomes = questions.map(({ at_ms: atMs, host, port, is_open: canBeDialled }) => {
      isOpen = canBeDialled;
      const question = Buffer.alloc(2);
      question.writeUInt16BE(port);
      return answerer.outcome(question, host, atMs);
    });
    return { outcomes, dialled };
  },
};
