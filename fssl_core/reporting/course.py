"""The course in ten modules; and the notebooks of the papers in reading order, each with the question it answers.

The index, the README and the lines that lead from one notebook to the next are made of this.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    """How to begin with the notebooks of one paper.

    Attributes:
        name: of its method, as everybody calls it.
        idea: the method in a sentence, as Markdown.
        needs: what a reader should know before, as Markdown.
        essential: IDs of the two to four notebooks that tell the story, in the course's order.
    """

    name: str
    idea: str
    needs: str
    essential: tuple[str, ...]


MODULES: dict[str, str] = {  # of the course, by ID, each with its question
    "course/01_measuring": "A network has never seen a label. How would you notice that it has learned something?",
    "course/02_contrastive": "What keeps the features of all images from becoming the same?",
    "course/03_averaging": "One model from many clients who keep their images: when does the average do harm?",
    "course/04_splitting": "Clients hold the first layers only. What crosses the wire, and how much of it?",
    "course/05_momentum": "What does one line of code change, and why does a falling loss prove nothing?",
    "course/06_aggregation": "Weigh each layer by its cosine: what does that do to a model?",
    "course/07_layerwise": "What does a client have to compute, hold and send if it trains one layer at a time?",
    "course/08_normalisation": "What does a normalisation pool together, and what does it give away?",
    "course/09_attacks": "Who can turn back into images what clients send, and what prevents it?",
    "course/10_reading": "A table says that a method is better. When do you believe it?",
}

CHAPTERS: dict[str, Chapter] = {  # by the paper's key, in the order of the course
    "mocosfl": Chapter(
        "MocoSFL",
        "Clients hold the first layers of a network, a server the others and a memory of features that all clients "
        "share. The server joins what the clients send into one large batch.",
        "MoCo: queries, keys, a queue of negatives, a momentum model.",
        ("mocosfl/fig3", "mocosfl/fig1", "mocosfl/table1"),
    ),
    "monacosfl": Chapter(
        "MonAcoSFL",
        "MocoSFL with the clients' momentum models averaged, too, so that clients can hold more layers and send less.",
        "The essential path of MocoSFL.",
        ("monacosfl/fig3", "monacosfl/fig6", "monacosfl/fig5", "monacosfl/fig8"),
    ),
    "ldawa": Chapter(
        "L-DAWA",
        "Clients train whole models. Their average weighs each layer of a client by its cosine to the same layer of "
        "the last global model.",
        "SimCLR, and federated averaging: clients train, a server averages their models, and so on.",
        ("ldawa/fig3", "ldawa/table1", "ldawa/fig4", "ldawa/beyond_aggregation"),
    ),
    "lwfedssl": Chapter(
        "LW-FedSSL",
        "Clients train one layer after the other, or with Prog-FedSSL more and more of them, to save memory, "
        "computation and traffic.",
        "SimCLR, federated averaging, and the blocks of a vision transformer.",
        ("lwfedssl/table1", "lwfedssl/fig5", "lwfedssl/table2", "lwfedssl/fig6"),
    ),
    "mfcl": Chapter(
        "MFCL",
        "Clients train a few layers as an auto-encoder and send their representations once. A second server trains "
        "the rest on them, and twin norm takes the place of batch norm.",
        "SimCLR, federated averaging, auto-encoders, and what batch norm computes.",
        ("mfcl/architecture", "mfcl/table3", "mfcl/table2", "mfcl/beyond_normalisation"),
    ),
    "benchmark": Chapter(
        "Benchmark",
        "All methods on one backbone, one division of the images and one evaluation, beside what a client needs.",
        "One notebook of each paper.",
        ("benchmark/one_table", "benchmark/robust_columns"),
    ),
}

COURSE: dict[str, str] = {
    "monacosfl/fig2": (
        "Clients hold the first layers of a network and send what comes out of them. What can one still see in it?"
    ),
    "mocosfl/fig3": "What does a client save by holding the first layers only, and how far do clients drift apart?",
    "mocosfl/fig1": "Why not simply average whole models? Small batches, few images, easy negatives.",
    "mocosfl/hardness": "What do the batch and the memory have to do with each other?",
    "mocosfl/table1": "Split training with a shared memory, beside averaged models: a handful of clients.",
    "mocosfl/table2": "The same with a hundred or a thousand clients, who hold a few images each.",
    "mocosfl/fig4": "How often do clients have to be synchronised?",
    "mocosfl/table3": "Is a larger backbone worth it?",
    "mocosfl/table4": "What are the features worth with one label in a hundred?",
    "monacosfl/fig3": "What does a client send, and at which cut is it the least?",
    "monacosfl/fig4": "What becomes of the accuracy at that cut?",
    "monacosfl/fig6": "What does one line of code change?",
    "monacosfl/fig1": "Traffic and accuracy in one picture: which cut would you take?",
    "monacosfl/fig7": "Does it hold for another architecture?",
    "monacosfl/fig5": "How does averaging move two models that follow each other? The mechanism, with two parameters.",
    "monacosfl/fig9": "The same mechanism in training: when do the models come apart, and what gives a client away?",
    "monacosfl/fig8": "Who can turn activations back into images, and at which cut?",
    "monacosfl/beyond_tradeoff": "Accuracy, traffic and privacy of every cut at once: is there a best one?",
    "mocosfl/beyond_resistance": "Can a client part be trained to keep its images to itself, and what does that cost?",
    "ldawa/fig3": (
        "Another way to average whole models: weigh each by its angle to the last one. What does a "
        "cosine do to a vector?"
    ),
    "ldawa/table1": "Does it train better, and need a cosine of whole models be slow?",
    "ldawa/fig4": "How far do clients turn away in a round, and what becomes of the weights that are scaled?",
    "ldawa/fig5": "What does the clients' loss say in the first rounds?",
    "ldawa/fig6": "Which rule reaches an accuracy in fewer rounds?",
    "ldawa/fig2": "Where do the global models go, and how wide is the valley they end in?",
    "ldawa/table3": "Is it fair? One class each, or shares of unequal size.",
    "ldawa/table4": "How unlike may clients be?",
    "ldawa/table2": "Eight rules beside each other, with all labels and with few.",
    "ldawa/table6": "The same where one client in ten takes part.",
    "ldawa/table5": "The same on larger images.",
    "ldawa/table7": "Are the features worth something elsewhere?",
    "ldawa/headline": "Which of the gains in the text do the tables bear out?",
    "ldawa/beyond_aggregation": "What is it that helps or harms: preferring some clients, or shrinking the weights?",
    "lwfedssl/table1": "What if a device cannot train the whole model? One layer after the other.",
    "lwfedssl/fig5": "What does a client then need: memory, multiply-adds, traffic?",
    "lwfedssl/table5": "And a client that was away for a while?",
    "lwfedssl/table10": "The same on medical images, cell by cell.",
    "lwfedssl/fig8": "How large a batch fits?",
    "lwfedssl/table2": "What accuracy is left when each layer is trained alone, and what if earlier ones go on?",
    "lwfedssl/table3": "Two layers at a time?",
    "lwfedssl/table4": "The same with a ResNet, whose layers are unequal.",
    "lwfedssl/table12": "Does the batch matter?",
    "lwfedssl/table6": "Can known add-ons make it cheaper or better?",
    "lwfedssl/table7": "And where a few of many clients take part?",
    "lwfedssl/table8": "Or where clients drop out by chance?",
    "lwfedssl/fig6": "Do clients stay closer together, or do fewer weights move?",
    "lwfedssl/fig7": "Medical images: what do they look like, and what do 28 pixels keep?",
    "lwfedssl/table9": "What are the encoders worth on them?",
    "lwfedssl/table11": "Larger images, larger patches.",
    "lwfedssl/fig10": "How unlike do three Dirichlet draws make clients?",
    "lwfedssl/table13": "Does it matter how unlike they are?",
    "lwfedssl/beyond_frontier": (
        "Few layers on the client, or one layer at a time: which buys more accuracy for a client's "
        "memory, work and traffic?"
    ),
    "mfcl/architecture": (
        "Another way to spare clients: train their layers on their own, as an auto-encoder, and the "
        "rest elsewhere. What is each part?"
    ),
    "mfcl/fig3": "What do batch, group and twin norm pool?",
    "mfcl/fig6": "When is what the second server receives balanced?",
    "mfcl/fig7": "Who holds which classes?",
    "mfcl/table3": "What does it cost a client, and does the arithmetic come out?",
    "mfcl/table2": "How good is it beside nine other methods, and what does twin norm give away?",
    "mfcl/table14": "The same between the extremes of heterogeneity.",
    "mfcl/table4": "And beside methods that give a weak client less to do?",
    "mfcl/table15": "Does it hold for another backbone, a VGG?",
    "mfcl/table5": "Is it the norm or the method?",
    "mfcl/fig9": "How many classes does one recognise in a picture of the features?",
    "mfcl/fig4": "Where does a network look for a class that its clients hardly ever saw?",
    "mfcl/table1": "Where to cut?",
    "mfcl/table17": "How many channels belong to a group?",
    "mfcl/table16": "Does the clients' batch matter?",
    "mfcl/fig8": "And if some clients never deliver?",
    "mfcl/table7": "In the setting of another paper.",
    "mfcl/table6": "What do secure aggregation and mixing cost?",
    "mfcl/table8": "Who can turn what is sent back into images, with and without collusion and mixing?",
    "mfcl/beyond_privacy": "A deep cut, or a shallow one that the server does not know: which gives away less?",
    "mfcl/beyond_normalisation": "Four norms on equal terms: why a pair must not be normalised together.",
    "benchmark/one_table": "Which method for clients with little memory, little traffic and private images?",
    "benchmark/robust_columns": "And if clients are faulty, drop out, or are ever less alike?",
}
