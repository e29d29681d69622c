"""The words of the stories: who lives where, what they are like, what they own, how a story opens and closes.

Earlier entries of a list are drawn more often (see `corpus.pick`), so a greedy reader of the model sees clear winners.
"""

ANIMALS = """fox rabbit mouse bear dog cat hedgehog frog squirrel duck turtle owl otter puppy kitten deer beaver goat
lamb pig pony sparrow raccoon badger mole penguin elephant lion monkey snail goose robin bird dragon""".split()

CHILDREN = ["girl", "boy"]

# Heroes and their friends have different names, so that nobody in a story meets a namesake.
HERO_NAMES = {
    "female": "Lily Mia Rosie Daisy Luna Ruby Ella Molly Clara Bella Maya Sophie Lucy Zoe Emma Anna".split(),
    "male": "Pip Tom Max Oliver Sam Leo Finn Toby Jack Milo Theo Hugo Felix Oscar Noah Tim".split(),
}

FRIEND_NAMES = {
    "female": "Hazel Nora Poppy Willow Tilly Ivy Fern Penny".split(),
    "male": "Benny Otto Charlie Gus Rusty Barnaby Ollie Ben".split(),
}

SYLLABLES = {
    "start": "b br d f fl g h j k l m n p r s t tr v w z".split(),
    "middle": "a e i o u ee oo ai".split(),
    "join": "b d l ll m n nn p r s t v".split(),
    "female": "a ie ina y elle".split(),
    "male": "o in er us y".split(),
}

TRAITS = [
    "little", "kind", "brave", "curious", "shy", "clever", "cheerful", "young", "gentle", "small", "happy", "playful",
    "quiet", "friendly", "busy", "lonely", "silly", "sleepy",
]  # fmt: skip

PLACES = [
    ("in a cozy house", "at the edge of the forest"),
    ("in a small village", "by the river"),
    ("in a green valley", "between two hills"),
    ("on a farm", "near a big pond"),
    ("in a little cottage", "on top of a hill"),
    ("in a quiet forest", "full of tall trees"),
    ("in a tiny house", "near the sea"),
    ("under an old oak tree", "in the middle of a meadow"),
    ("in a warm den", "beside a stream"),
    ("in a town", "with a tall clock tower"),
]

WEATHER = ["sunny", "bright", "rainy", "windy", "cold", "warm", "snowy", "foggy"]

LOVES = [
    "play in the sun", "pick flowers", "sing songs", "read books", "look at the stars", "climb the hills",
    "help others", "collect shiny stones", "tell funny stories", "dance in the rain", "bake cookies", "paint pictures",
    "explore new places", "listen to the birds", "jump in puddles", "watch the clouds",
]  # fmt: skip

TREASURES = [
    "red ball", "blue scarf", "silver bell", "toy boat", "golden key", "green hat", "wooden whistle", "favorite book",
    "yellow kite", "warm blanket", "shiny button", "little drum", "paper lantern", "soft teddy bear", "round mirror",
]  # fmt: skip

FOODS = [
    "apple pie", "honey cake", "loaf of bread", "berry pie", "plum tart", "nut cake", "cheese pie", "golden pancake",
    "carrot cake", "ginger cake",
]  # fmt: skip

SPOTS = [
    "under the big rock", "behind the bushes", "inside a hollow log", "in the tall grass", "near the old bridge",
    "beside the stream", "behind the barn", "under a pile of leaves", "next to the well", "by the garden gate",
]  # fmt: skip

# How a story starts. {h} hero, {kind} its kind, {he} its pronoun, {place} and {where} its home, {home} both.
OPENINGS = [
    "Once upon a time, there was a {trait} {kind} named {h}. {he} lived {home}. {habit}",
    "Once upon a time, a {trait} {kind} named {h} lived {home}. {habit}",
    "Once upon a time, {home}, there lived a {trait} {kind} named {h}. {habit}",
    "One day, a {trait} {kind} named {h} [went for a walk|woke up early|went out to play]. {h} lived {home}, and {he} loved to {love}.",
    "There was a {trait} {kind} named {h} who lived {home}. {habit}",
    "{h} was a {trait} {kind} who lived {home}. {habit}",
    "There once was a {trait} {kind} [named|called] {h}. {habit} {he} lived {home}.",
    "Long ago, {home}, there was a {trait} {kind} [named|called] {h}. {habit}",
    "It was a {weather} [morning|day]. {h} the {kind} woke up in {his} home {where}. {habit}",
    "{place} {where}, there lived a {trait} {kind} named {h}. {habit}",
    "A {trait} {kind} named {h} lived {home}. {habit}",
    "[In the middle of|Deep in] the forest, there lived a {trait} {kind} named {h}. {habit}",
    "One {weather} [morning|day|afternoon], {h} the {kind} was [walking along the path|sitting {where}|looking out of the window]. {h} was a {trait} {kind} who loved to {love}.",
    "Little {h} was a {trait} {kind}. {he} lived {home}. {habit}",
    "Every morning, {h} the {kind} liked to {love}. {he} lived {home}, and everyone said that {h} was a very {trait} {kind}.",
    '"[Good morning|Hello], world!" said {h} the {kind}. {h} lived {home}. {habit}',
    "The {trait} {kind} {h} lived {home}. {habit}",
    "This is the story of {h}, a {trait} {kind} who lived {home}. {habit}",
    "The sun was [shining|coming up], and {h} the {kind} was already awake. {h} was a {trait} {kind} who lived {home}.",
]  # fmt: skip

# For plots whose two heroes are friends from the start.
FRIEND_OPENINGS = [
    "{h} and {f} were best friends. {h} was a {trait} {kind}, and {f} was a {trait2} {fkind}. They lived {home}.",
    "Once upon a time, there were two friends, {h} the {kind} and {f} the {fkind}. They lived {home}. {habits}",
    "{h} the {kind} and {f} the {fkind} lived {home}. They were [best|good] friends. {habits}",
]

HABITS = [
    "{he} loved to {love}.",
    "Every day, {he} liked to {love}.",
    "{he} loved to {love}, but most of all {he} loved to {love2}.",
    "{he} liked to {love} and {love2}.",
    "More than anything, {h} loved to {love}.",
    "",
]

FRIEND_HABITS = ["They loved to {love}.", "Every day, they liked to {love} and {love2}.", "They both loved to {love}."]

CLOSINGS = [
    "From that day on, {h} and {f} were the best of friends.",
    "That night, {h} fell asleep with a big smile.",
    "And from then on, whenever {h} saw {f}, they both smiled.",
    "{h} and {f} laughed and [danced|played] until the sun went down.",
    "It was the best day ever.",
    "And they all lived happily ever after.",
    "{h} never forgot that day.",
    "",
]
