"""What a file is before it is read: lines, encoding, delimiter, header, format, and which files belong together."""
