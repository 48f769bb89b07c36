"""The index: a short text about each capability. The texts are made when the catalog changes."""
