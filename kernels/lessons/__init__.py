"""What the chapters teach with: exercises, a gallery of bugs, pictures, a program for hosts."""

__all__ = ["exercises", "gallery", "hosts", "pictures"]
