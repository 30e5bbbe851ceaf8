"""What the chapters teach with: exercises, a gallery of bugs, and pictures."""
