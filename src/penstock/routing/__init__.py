"""Which endpoint should serve a request? One function type, used by the simulator and the gateway alike."""

from penstock.routing.pick import Decision, EndpointState, Picker, RouteRequest

__all__ = ["Decision", "EndpointState", "Picker", "RouteRequest"]
