"""Import from and export to Hugging Face, ONNX and CTranslate2."""
