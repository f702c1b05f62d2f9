"""HTML elements, the page around them, and its style sheet."""
