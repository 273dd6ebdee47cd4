"""How brokers know each other by HTTP: a shared secret, when one is set, and the id of their cluster."""

from __future__ import annotations

import hmac
from typing import Protocol

from odradek.controller.transport import CLUSTER_HEADER, SECRET_HEADER, cluster_headers
from odradek.edge.routing import Request, RequestError

FORWARDED_HEADER = "x-odradek-forwarded"  # a broker passes on what a client has asked


class Member(Protocol):
    """What a broker knows of its cluster."""

    @property
    def secret(self) -> str | None:
        """What brokers show each other; None when they need not."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty while this broker knows none."""


class Guard:
    """Lets brokers of the own cluster pass."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def check(self, request: Request) -> None:
        """Refuse whoever is no broker of this cluster: 401 without the secret, 409 with another cluster's id."""
        self.check_secret(request)
        theirs, ours = request.headers.get(CLUSTER_HEADER, ""), self._member.cluster_id
        if theirs and ours and theirs != ours:
            raise RequestError(
                409, f"this broker is of the cluster {ours}, the request is for {theirs}: two clusters share an address"
            )

    def check_secret(self, request: Request) -> None:
        """Refuse with 401 whoever does not know the secret, when there is one."""
        if self._member.secret is not None and not self.shows_secret(request):
            raise RequestError(401, f"only brokers of this cluster may ask this: the header {SECRET_HEADER} is wrong")

    def shows_secret(self, request: Request) -> bool:
        """Say whether there is a secret, and whoever asks knows it."""
        secret = self._member.secret
        shown = request.headers.get(SECRET_HEADER, "")
        return secret is not None and hmac.compare_digest(shown.encode("latin-1"), secret.encode())

    def headers(self) -> dict[str, str]:
        """What this broker shows to others."""
        return cluster_headers(self._member.cluster_id, self._member.secret)
