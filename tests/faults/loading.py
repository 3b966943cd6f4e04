"""The reference with a loader of image files, and loaders with one fault each.

`plan` tells the loader which samples come, `read` how one becomes an input and a label.
"""

import numpy as np
from PIL import Image

from runners.reference.runner import Runner


class FromFiles(Runner):
    """Reads the files one by one, in the order that it was given."""

    def __init__(self, task):
        self.task = task
        super().__init__(task)

    def files(self, described):
        self.described, self.count = described, len(described["paths"])
        return "one by one", self.batches(), 0

    def step(self):
        if "next_batch" not in self.__dict__:
            super().step()
            return
        self.last_loss, gradients = self.differentiate(*self.next_batch())
        for name, gradient in gradients:
            self.update(name, gradient)
        self.track()

    def batches(self):
        numbers = self.plan()
        while True:
            samples = [self.read(next(numbers)) for _ in range(self.task.batch)]
            images, labels = zip(*samples, strict=True)
            yield self._place(np.stack(images)), np.array(labels, np.int32)

    def plan(self):
        place = 0
        while True:
            yield self.described["order"][place % len(self.described["order"])]
            place += 1

    def read(self, number):
        image = np.atleast_3d(np.array(Image.open(self.described["paths"][number])))
        image = (image.astype(np.float32) / 255 - self.described["mean"]) / self.described["deviation"]
        return image.transpose(2, 0, 1), self.described["labels"][number]


class OtherLabels(FromFiles):
    """Shuffles the labels against the images."""

    def files(self, described):
        described["labels"] = np.random.default_rng(0).permutation(described["labels"])
        return super().files(described)


class Twice(FromFiles):
    """Delivers the second sample of an epoch again at its tenth place."""

    def plan(self):
        for place, number in enumerate(super().plan()):
            yield self.described["order"][place - 8] if place % self.count == 9 else number


class BlueForRed(FromFiles):
    """Has the channels the other way round, as OpenCV reads them."""

    def read(self, number):
        image, label = super().read(number)
        return image[::-1], label


class DropsLast(FromFiles):
    """Drops what does not fill a batch at the end of each epoch, and says nothing."""

    def plan(self):
        for place, number in enumerate(super().plan()):
            if place % self.count < self.count - self.count % self.task.batch:
                yield number


class Brighter(FromFiles):
    """Divides by 256 in place of 255."""

    def read(self, number):
        image, label = super().read(number)
        mean, deviation = (self.described[name][:, None, None] for name in ("mean", "deviation"))
        return ((image * deviation + mean) * 255 / 256 - mean) / deviation, label


class Ends(FromFiles):
    """Ends with the first epoch."""

    def batches(self):
        for _, batch in zip(range(self.count // self.task.batch), super().batches(), strict=False):
            yield batch


class SkipsLater(FromFiles):
    """Loses a sample in the third epoch, when nobody compares."""

    def plan(self):
        return (number for place, number in enumerate(super().plan()) if place != 2 * self.count + 3)


class Slow(FromFiles):
    """Decodes each image twelve times."""

    def read(self, number):
        for _ in range(12):
            found = super().read(number)
        return found
