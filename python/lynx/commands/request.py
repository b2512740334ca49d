"""What a decode node asks of a prefill node for one transfer, as the JSON that goes between them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import lynx
from lynx.modes import coding_from_json, coding_to_json
from lynx.transfer import CacheCoding

_FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty")
_INTEGERS = ("top_k", "seed")


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """A cache in a coding, and the first token by a sampling."""

    request_id: int
    coding: CacheCoding
    sampling: lynx.Sampling

    def serialize(self) -> bytes:
        """The message."""
        sampling = {name: getattr(self.sampling, name) for name in (*_FLOATS, *_INTEGERS)}
        message = {"request_id": self.request_id, **coding_to_json(self.coding), "sampling": sampling}
        return json.dumps(message).encode()

    @staticmethod
    def parse(message: bytes) -> TransferRequest:
        """The reverse. Raises `ValueError` for anything but what `serialize` writes."""
        request = json.loads(message)
        request_id = request.get("request_id") if isinstance(request, dict) else None
        if not isinstance(request_id, int) or not 0 <= request_id < 2**64:
            raise ValueError("a request for a transfer was not understood")
        return TransferRequest(request_id, coding_from_json(request), _sampling(request.get("sampling")))


def _sampling(fields: object) -> lynx.Sampling:
    if not isinstance(fields, dict) or fields.keys() != {*_FLOATS, *_INTEGERS}:
        raise ValueError(f"sampling is {fields!r}; it has to have {', '.join((*_FLOATS, *_INTEGERS))}")
    for name in _FLOATS:
        if not isinstance(fields[name], int | float) or isinstance(fields[name], bool):
            raise ValueError(f"{name} is {fields[name]!r}; it has to be a number")
    for name, bits in zip(_INTEGERS, (32, 64), strict=True):
        value = fields[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**bits:
            raise ValueError(f"{name} is {value!r}; it has to be 0 to 2^{bits} - 1")
    try:
        return lynx.Sampling(**fields)
    except (lynx.Error, TypeError, OverflowError) as e:
        raise ValueError(str(e)) from None
