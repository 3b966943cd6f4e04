"""From files to answers: decoding, resizing, normalising and inference, by several libraries."""
