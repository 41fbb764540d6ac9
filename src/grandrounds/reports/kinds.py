"""What travels, what a policy allows and what a log notes, in the words of somebody who did not write the software."""

from __future__ import annotations

from collections.abc import Mapping

from grandrounds.reports.wording import byte_size, count, listed, plural

KINDS = {
    "parameters": "weights of the model",
    "gradients": "gradients of shared weights",
    "tensors": "numbers of the algorithm's own",
    "adapters": "low-rank adapters of the model",
    "predictions": "predictions for the coordinator's public examples",
    "predicted_labels": "predicted classes of the coordinator's public examples",
    "label_counts": "how many examples have each label",
    "public_set": "the coordinator's public examples",
    "bag_scores": "scores of facts, under keyed digests",
    "selection": "for which facts this site's sentence was chosen",
    "vocabulary_counts": "words and parts of words, with counts",
    "scores": "counts of right and wrong answers",
    "done": "the message that it is done",
    "mask_keys": "public keys for masks",
    "key_shares": "shares of mask keys, sealed to the other sites",
    "masked": "numbers under masks, of which only the sum can be read",
    "stayed": "which sites a masked sum is of",
    "agreement": "signatures of which sites a masked sum is of",
    "opened_shares": "opened shares of mask keys",
}
EVENTS = {
    "started": "the run began",
    "resumed": "the run went on after a break",
    "recovered": "a line that a crash had torn was put aside",
    "registered": "said who it is and how much it holds",
    "asked": "was asked for an answer",
    "secure sum": "took part in a masked sum",
    "secret sealed": "sealed the sites' secret to the others",
    "secret received": "received the sites' secret",
    "peers": "received the other sites' keys",
    "policy": "joined, with this policy",
    "bye": "the coordinator said that the run is over",
    "refused": "the coordinator refused this site",
    "failed": "a message could not be answered",
    "model refused": "the coordinator's final model was not taken",
}


def kind(name: str) -> str:
    """A plugin's own kind has its name alone."""
    return KINDS.get(name, name)


def event(name: str) -> str:
    """Refusals and rejections are sentences already."""
    return EVENTS.get(name, name)


def policy(held: Mapping[str, object]) -> list[str]:
    """What may leave, in sentences; the keys are those of `Policy`."""
    allowed = held.get("allow")
    if isinstance(allowed, list):
        named = [f"{kind(str(one))} ({one})" for one in sorted(map(str, allowed))]
        said = [f"May leave: {listed(named, 20)}. Nothing else may." if named else "Nothing may leave."]
    else:
        said = ["Every kind that the algorithm declares may leave."]
    if (most := _number(held, "max_bytes")) and most < 1 << 34:
        said.append(f"One payload may have {byte_size(most)} at most.")
    if least := _number(held, "vocabulary"):
        said.append(f"Words may leave that {plural(int(least), 'document')} or more have.")
    if (least := _number(held, "least_batch")) and least > 1:
        said.append(f"Gradients must be of {count(int(least))} sentences or more.")
    if (least := _number(held, "least_sites")) and least > 2:
        said.append(f"A masked sum must be of {count(int(least))} sites or more.")
    if limit := _number(held, "epsilon"):
        said.append(f"Privacy: epsilon {limit:g} may be spent in all.")
    if held.get("receive_model") is False:
        said.append("The federation's final model is not taken.")
    return said


def _number(held: Mapping[str, object], key: str) -> float | None:
    value = held.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
