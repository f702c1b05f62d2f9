"""Encoders: [B, S, input_dim] -> Encoded."""
