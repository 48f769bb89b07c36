"""How one part of the daemon asks another: one client class for each actor.

A method sends one request and returns the reply. A reply of one field is returned as that field. A
refusal is a reply, and part of the method's return type. If no usable reply comes in time, every
method raises `ActorUnavailableError`.

A method takes the fields of its request as arguments, or the request itself. `timeout` is in
seconds; it has a default if the same value suits most callers.

The clients know the messages and the bus, never the actors. That is why an actor may use them while
actors never import each other.
"""
