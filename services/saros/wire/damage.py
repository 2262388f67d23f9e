"""What reading bytes raises where they are damaged: our own codec a ValueError, protobuf an error of its own."""

from google.protobuf.message import DecodeError

DAMAGED = (ValueError, DecodeError)
