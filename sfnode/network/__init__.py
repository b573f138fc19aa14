"""The network of a node: libp2p host, sessions with neighbours, known peers. Uses trio and libp2p, never torch."""

from sfnode.network.transport.fastecdsa_placeholder import provide_when_missing

provide_when_missing()  # before any module of this package imports libp2p
