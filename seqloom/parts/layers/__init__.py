"""Single layers: embedding, dropout, norm, activations, pooling, n-gram features, CRF, output, cross-entropy."""
