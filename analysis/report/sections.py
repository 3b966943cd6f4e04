"""The texts of a campaign's report: how it was measured, and the sections with their tables.

Words in braces stand for what `analysis.report.report` finds in the records.
"""

from analysis.statistics import bootstrap
from analysis.trials import effort

DRAWN = "with the weights that were drawn. A trained network's accuracy is another matter."
TRAINED = "with the trained weights that the suite names for {}."
METHOD = (
    "Each trial runs in several processes, interleaved in random order. A process times windows of "
    "many steps, each between two synchronisations that wait for the updated parameters. A time is "
    "the median over processes of each process's median window. Its 95 % interval is a bootstrap "
    "that draws processes first and windows within them, widened for few processes; fewer than "
    f"{bootstrap.MINIMUM_PROCESSES} processes give none. If the interval of a ratio contains 1, no "
    "difference was seen.",
)
INFERENCE_METHOD = (
    "Each trial runs in several processes, interleaved in random order. A process runs calls one "
    "after another and keeps the time of each; a time per call is the mean of a window of calls. "
    "A quantile is the median over processes of each process's quantile. Its 95 % interval draws "
    "processes, and for each the rank of its order statistic, and is widened for few processes.",
    "Only verified rows are ranked. In a verified row, each process gave the reference's outputs. "
    "They are checked for inputs of the proof before the first window, and for the timed inputs "
    "in the last call of each window. The error's size fits the declared precision.",
)
# What proved the rows: of campaigns that prove each process, and of those of earlier releases.
PROOFS = {
    True: "Only verified rows are ranked. In a verified row, each process proved the step that it "
    "timed before the first window and after the last one. Its loss, gradients, updates and "
    "running statistics agreed with the reference. A runner that trains nothing would have been "
    "refused. Losses that differ from another row's are remarks.",
    False: "Only verified rows are ranked. In a verified row, the framework agreed with the "
    "reference in loss, gradients and trained parameters. It built the network's own number of "
    "parameters. Its losses agree with those of its other processes and of the other frameworks.",
}
CHECKED = "The last columns divide two measurements of one quantity. They should be 1."
UNSEEN = "Not seen: even a missing update could have passed."
RISING = ("Some losses rise: a process trains only as long as its windows take, and momentum may "
          "raise the loss in the first tens of steps.")

# The sections of tables: name of the table, heading, notes above and below it.
SECTIONS = (
    ("best", "Each framework at its best",
     "Each framework's fastest verified row of all tiers. Only this table compares across tiers.",
     ""),
    ("loops", "Beside reference loops",
     "A loop runs the same network without dlbench, as the framework's users write it. Processes "
     "of both sides took turns. A row should be at least "
     f"{effort.OF_ITS_LOOP} times as fast as its loop.", ""),
    ("settings", "What each tier sets", "Each worker reports its settings.", ""),
    ("to_target", "Time to accuracy",
     "Until {target} of the test part's labels are right: medians over seeds, with the least and "
     "the most. Each seed gives all rows the same weights and the same mini-batches. Training time "
     "leaves testing and feeding out. dlbench tests the weights itself, in float64.", "{epochs}"),
    ("loading", "Training from image files",
     "Each framework's own loader reads, decodes and batches the files; all three times are of a "
     "mini-batch, timed in turn in each process. Compute-bound: training takes at most 5 % longer "
     "than the step alone on batches that lie on the device. Loader-bound: it takes longer, and "
     "the loader alone takes at least as long as the step. Overlap lost: the loader alone keeps "
     "up, and training takes longer all the same. On a CPU both share its cores. Files: {files}.",
     "Every sample of an epoch and the batches after the last window were compared with the "
     "driver's own decode."),
    ("latency", "Latency of a call", "One call at a time, from input to output.", ""),
    ("first_call", "Build and first call",
     "From a loaded framework to the first answer. Some engines compile while they build, others "
     "in the first call, so compare both together. Compilers' caches on disk may be warm, and "
     "other processes may build meanwhile. The file is the one that an engine reads.", ""),
    ("requests", "Requests that a server answers in time",
     "Requests come at random. The rate is the highest that LoadGen calls valid, with {served} of "
     "them answered within {limit}. They queue for one worker, which answers up "
     "to a batch at a time. The search ends at an interval of 3 % of the rate that calls one after "
     "another reach. LoadGen shares the worker's cores.", ""),
    ("scenarios", "MLPerf's scenarios",
     "LoadGen asks: Server at random, MultiStream for one batch after another, Offline for all "
     "samples at once. Its verdict holds for the suite's duration; an official result takes ten "
     "minutes.", ""),
    ("times", "Every measured row", "Relative speed: against the fastest row of its workload.",
     "{rising}"),
    ("remarks", "Remarks on ranked rows", "A remark does not change a row's rank.", ""),
    ("proof", "What the proof of each row sees",
     "The smallest faults that the proof would have refused, in the weakest process of the row. "
     "Learning rate: how wrong it would be. Scale of gradients: how wrong it would be in the "
     "tensors that hold 95 % of the parameters. Frozen parameters: the share in tensors that "
     "could stand still.",
     "{unseen}"),
    ("outputs", "How far outputs are off",
     "The largest distance from the float64 reference, in units of how outputs differ between "
     "inputs. Beside it stands what the rounding of the declared precision explains. The reference "
     "of INT8 quantises as the engine must.", ""),
    ("quantisation", "What INT8 costs",
     "Outputs against those of the network itself, {weights}", ""),
    ("answers", "Accuracy on the test part",
     "Trained weights answer every sample, and all outputs are compared with the reference. Lost: "
     "the accuracy of the float64 reference, which does not quantise, less that of the row. Its "
     "95 % interval is Newcombe's for pairs (1998, method 10), since both answered the same "
     "samples. It speaks of other samples of this kind, not of other weights.", ""),
    ("scaling", "Several devices",
     "Each row is compared with the row on one device that differs in nothing else, with the same "
     "batch on each device (weak scaling){strong}. Efficiency is the speed-up over the number of "
     "devices.", "{unscaled}"),
    ("strategies", "Which aggregation strategy wins", "", ""),
    ("divided", "What devices send to each other",
     "Bytes of all devices in a step. Predicted: from the network and how it was divided. Counted: "
     "by NVLink's counters. A pipeline idles while its first stages fill and its last ones empty.",
     "{uncounted}"),
    ("phases", "What a step is made of",
     "Differences of nested variants of the step, timed in turn in one process. Aggregation is "
     "hidden if it takes longer alone than it adds to the step. A part is the median of paired "
     "differences. So the parts of a step with scattered times do not add up to it, and the last "
     "column says by how much.", ""),
    ("traffic", "Traffic and energy of a mini-batch", "",
     "Bytes on the links include packet headers. Joules are those of all devices of a row. Both "
     "come from counters read at the edges of each timed window. {checked}"),
    ("memory", "Peak memory", "", "{memory}"),
    ("speed_up", "The GPU's speed-up over the processor",
     "The processor's time divided by the GPU's. Both ran the same trial in the same build of each "
     "framework.", ""),
    ("reasons", "Why the slower ones are slower",
     "Each row that is shown to be slower stands beside the fastest of its workload. Their traces "
     "give the parts of their steps that differ by a tenth of the gap or more. "
     "`dlbench explain` shows one pair in full.", ""),
    ("gpu_time", "Where the GPU's time goes",
     "Shares of all kernels and copies of a mini-batch, from a trace of ten steps. Idle is what "
     "they leave of the timed step.{traced}", ""),
    ("limits", "Distance from the hardware limit",
     "The limit is the time that the network's operations and bytes need at the peaks that this "
     "campaign measured. The rest of the step was lost to the classes of its trace. Shares are of "
     "the step's time; a negative share took less time than the limit allows for it.", ""),
)
