"""The pointwise part of an LSTM, whole LSTM steps in half precision, and input feeding on a CPU."""
