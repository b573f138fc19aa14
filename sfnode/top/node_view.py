"""Look at one data directory: its last status, and why there is no newer one."""

from dataclasses import dataclass, replace

from protocol.errors import OperatorError
from sfnode.status import Status, describe_learning, health_of, read_status
from sfnode.storage import DataDirectory, pasteable


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Holds one node as last seen.

    Attributes:
        status: the last one that could be read; None: none yet.
        trouble: why there is no status now: the node stopped, hangs or never ran; empty while it reports.
        is_done: it has stopped because its run is over.
    """

    data_dir: DataDirectory
    status: Status | None = None
    trouble: str = ""
    is_done: bool = False

    def warnings(self) -> list[str]:
        """Return warnings for the operator, the worst first; each is a sentence without its full stop."""
        if self.trouble or self.status is None:
            return [self.trouble] if self.trouble else []
        return [text for text in (health_of(self.status)[1], describe_learning(self.status)) if text]


def look(view: NodeView) -> NodeView:
    """Return a new view of the node; keep the last status where no newer one can be read."""
    try:
        return NodeView(data_dir=view.data_dir, status=read_status(view.data_dir))
    except OperatorError as error:
        trouble = str(error)
    # A node whose run was over when it was last seen has left, and not failed.
    if view.status is None or not view.status.end.is_over or not trouble.startswith("no node runs"):
        return replace(view, trouble=trouble)
    text = (
        f"the node has finished its run and stopped. Its model: {pasteable('sfnode export --data-dir', view.data_dir)}"
    )
    return replace(view, trouble=text, is_done=True)
