"""Single layers: embedding, dropout, norm, pooling, convolution, CRF, output, loss."""
