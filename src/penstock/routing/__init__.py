"""Which endpoint should serve a request? One function type, used by the simulator and the gateway alike."""

from penstock.routing.pick import Decision, EndpointState, Route, RouteRequest

__all__ = ["Decision", "EndpointState", "Route", "RouteRequest"]
