"""Door: `AskingCommand`. What `sfnode init` asks at a terminal for options that were not given."""

from sfnode.cli.questions.asking_command import AskingCommand, check_is_new, command_with_answers

__all__ = ["AskingCommand", "check_is_new", "command_with_answers"]
