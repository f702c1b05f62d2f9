"""What mixes information along time: full, windowed, sparse, linear and hashed attention."""
