"""Door: `AskingCommand`. What `sfnode init` asks at a terminal for options that were not given."""

from sfnode.cli.questions.asking_command import (
    AskingCommand as AskingCommand,
    check_is_new as check_is_new,
    command_with_answers as command_with_answers,
)
