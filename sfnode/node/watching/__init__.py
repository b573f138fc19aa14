"""Door: `NodeWatch`. What a running node reports about itself: status file, progress, news for the operator."""

from sfnode.node.watching.node_watch import NodeWatch
