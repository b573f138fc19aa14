"""Bugs at the trust boundary: envelopes, keys, messages, manifests."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_ENVELOPE, _MANIFEST = "protocol.ledger.envelope", "protocol.run.manifest"

ENVELOPES = (
    Mutant(
        name="signature-without-run-id",
        breaks="the signature does not cover the run",
        edits=(Edit(_ENVELOPE, "EnvelopeCodec.__init__", "_SIGNED_TAG + manifest.run_id", "_SIGNED_TAG"),),
        detector=Vectors(("envelopes.json",)),
    ),
    Mutant(
        name="run-id-nowhere",
        breaks="neither signature nor seed covers the run: a record of another run counts in this one",
        edits=(
            Edit(_ENVELOPE, "EnvelopeCodec.__init__", "_SIGNED_TAG + manifest.run_id", "_SIGNED_TAG"),
            Edit("protocol.crypto.hashing", "seed_of", "run_id, author, u32(step)", "author, u32(step)"),
        ),
        detector=Simulation("nobody has signed so"),
    ),
    Mutant(
        name="signature-not-checked",
        breaks="any signature will do",
        edits=(
            Edit(
                "protocol.crypto.keys",
                "is_signed",
                "except BadSignatureError:\n        return False",
                "except BadSignatureError:\n        return True",
            ),
        ),
        detector=Simulation("nobody has signed so"),
    ),
    Mutant(
        name="seed-not-checked",
        breaks="an author may choose its directions",
        edits=(
            Edit(
                _ENVELOPE,
                "EnvelopeCodec.check_signed",
                "if envelope.seed != hashing.seed_of(self._manifest.run_id, envelope.author, envelope.step):",
                "if False:",
            ),
        ),
        detector=Vectors(("envelopes.json",)),
    ),
    Mutant(
        name="key-not-checked",
        breaks="keys of small or mixed order are let in",
        edits=(
            Edit(_ENVELOPE, "EnvelopeCodec.check_signed", "if not crypto.is_author_key(envelope.author):", "if False:"),
        ),
        detector=Vectors(("envelopes.json",)),
    ),
    Mutant(
        name="lower-clip-not-checked",
        breaks="scalars may lie below the lower bound",
        edits=(Edit(_ENVELOPE, "EnvelopeCodec.decode_untrusted", "or min(scalars) < -method.clip", ""),),
        detector=Vectors(("envelopes.json",)),
    ),
    Mutant(
        name="energy-of-the-first-local-step",
        breaks="only the first local step's scalars must be normalised: the others may shout",
        edits=(
            Edit(_ENVELOPE, "EnvelopeCodec.decode_untrusted", "range(0, method.scalars, method.directions)", "(0,)"),
        ),
        detector=Vectors(("envelopes.json",)),
    ),
    Mutant(
        name="energy-of-all-directions",
        breaks="an update of a slow node, who measured some directions only, is refused",
        edits=(Edit(_ENVELOPE, "_check_energy", "len(scalars) - scalars.count(0)", "len(scalars)"),),
        detector=Vectors(("envelopes.json",)),
    ),
    Mutant(
        name="nothing-measured-is-an-update",
        breaks="normalised scalars may all be zero",
        edits=(Edit(_ENVELOPE, "_check_energy", "not count or ", ""),),
        detector=Vectors(("envelopes.json",)),
    ),
    Mutant(
        name="step-one-beyond-the-end",
        breaks="the step after the last one is accepted",
        edits=(Edit(_ENVELOPE, "EnvelopeCodec.decode_untrusted", "step >= self", "step > self"),),
        detector=Vectors(("envelopes.json",)),
    ),
)

MESSAGES = (
    Mutant(
        name="other-encodings-accepted",
        breaks="a message may be written in several ways",
        edits=(Edit("protocol.wire", "decode_untrusted", "if encode(message) != payload:", "if False:"),),
        detector=Vectors(("messages.json",)),
    ),
    Mutant(
        name="booleans-are-integers",
        breaks="true passes for 1, as Python thinks",
        edits=(Edit("protocol.schema", "_convert_scalar", "type(data) is not kind", "not isinstance(data, kind)"),),
        detector=Vectors(("messages.json",)),
    ),
    Mutant(
        name="work-without-bound",
        breaks="an owner may make each update of 2 kB cost every node seconds and gigabytes",
        edits=(Edit(_MANIFEST, "_broken_rules", "cores > limits.CORES_MAX", "False"),),
        detector=Vectors(("manifests.json",)),
    ),
    Mutant(
        name="manifest-in-other-bytes",
        breaks="a manifest that is not in canonical form is accepted: one document has several run ids",
        edits=(Edit(_MANIFEST, "decode_run_untrusted", "if manifest.canonical != lines[0]:", "if False:"),),
        detector=Vectors(("manifests.json",)),
    ),
    Mutant(
        name="log-records-in-any-order",
        breaks="one run has several log files that all say they are it",
        edits=(
            Edit(
                "protocol.documents.log_file",
                "LogReader._add_records",
                "(place := (record[_STEP], record)) <= self._last_place",
                "not (place := (record[_STEP], record))",
            ),
        ),
        detector=Vectors(("logs.json",)),
    ),
    Mutant(
        name="label-words-that-nothing-sets-apart",
        breaks="two label words have the same token to be scored by: the model is asked which of them it is, in vain",
        edits=(
            Edit(
                "sfnode.training.task.encoding",
                "_set_apart",
                "len(set(following)) == len(words)",
                "len(following) == len(words)",
            ),
        ),
        detector=Vectors(("tokens.json",)),
    ),
    Mutant(
        name="common-beginning-left-out",
        breaks="label words are scored by their second tokens right after the prompt, where none of them would stand",
        edits=(Edit("sfnode.training.task.encoding", "PromptEncoder._example", ", *self.lead)", ")"),),
        detector=Vectors(("tokens.json",)),
    ),
    Mutant(
        name="audit-of-any-run",
        breaks="a report about a message of another run is taken for one about this run",
        edits=(
            Edit(
                "protocol.documents.audit_report",
                "decode_report_untrusted",
                "if report.run_id != manifest.run_id.hex():",
                "if False:",
            ),
        ),
        detector=Vectors(("audits.json",)),
    ),
    Mutant(
        name="part-from-anywhere",
        breaks="a peer may send the parts of a document in any order, and the node puts them together so",
        edits=(
            Edit(
                "sfnode.network.sessions.file_download",
                "Download._add_untrusted",
                "part.offset == self._next_offset and ",
                "",
            ),
        ),
        detector=Vectors(("sessions.json",)),
    ),
    Mutant(
        name="manifest-signature-not-checked",
        breaks="anybody may change the manifest on the way",
        edits=(Edit(_MANIFEST, "decode_run_untrusted", "if not is_signed(", "if False and not is_signed("),),
        detector=Vectors(("manifests.json",)),
    ),
)
