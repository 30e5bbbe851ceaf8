"""What the chapters teach with: exercises, a gallery of bugs, pictures, a program for many hosts."""

__all__ = ["exercises", "gallery", "hosts", "pictures"]
