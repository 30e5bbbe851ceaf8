"""The one door to names that other packages keep to themselves."""
