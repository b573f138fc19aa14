"""Door: `AskingCommand`. What `sfnode init` asks of an owner at a terminal who has not said it by options."""

from sfnode.cli.questions.asking_command import AskingCommand, check_is_new, command_with_answers

__all__ = ["AskingCommand", "check_is_new", "command_with_answers"]
