"""What has changed from one policy to another: in which cells, where, and at what cost.

``regions`` says in words where, and ``diff`` all of it.
"""
