"""OpenVINO with bf16 as its precision, as it comes on a processor that has bf16."""

from runners.openvino import inference


class SilentBf16(inference.OpenVino):
    def options(self):
        return {**super().options(), inference.HINT: "bf16"}
