"""Recurrent cells: single steps, all steps at once, and the decoder with attention."""
