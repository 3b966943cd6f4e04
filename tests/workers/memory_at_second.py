"""The reference, which finds no memory for the first network that any worker of this folder builds."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        try:
            open("tried", "x").close()
        except FileExistsError:
            return
        raise MemoryError("there is none at first")
