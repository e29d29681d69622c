"""The plots: each a text with slots and alternatives (notation in corpus.py), told after the opening.

`pick` binds a plot's own slots; `hero` and `friend` limit which kinds fit the parts; with
`friends` the two know each other from the start.
"""

from words import FOODS, SPOTS, TREASURES

CLIMBERS = ["squirrel", "cat", "monkey", "raccoon", "kitten"]
SMALL = ["mouse", "frog", "snail", "hedgehog", "mole", "robin", "sparrow"]
FINE = ["sunny", "bright", "warm"]  # weather for plots that need a good day
LAND = """fox rabbit mouse bear hedgehog squirrel cat puppy kitten deer goat lamb pig pony raccoon badger mole girl
boy""".split()

LOST = {
    "pick": {"thing": TREASURES, "spot*3": SPOTS},
    "text": """
{h} had a {thing}. {he} [took it everywhere|loved it very much|played with it every day]. But one {weather} morning,
the {thing} was gone! [{h} was very sad.|{h} began to cry.|"Oh no! Where is my {thing}?" cried {h}.]

{he} looked {spot1}, but it was not there. {he} looked {spot2}, but it was not there. [Then|Just then] {he} met {f}
the {fkind}. "Why are you so sad?" asked {f}. "I lost my {thing}," said {h}. ["Do not worry," said {f}. "I will help
you look."|"Let us look together," said {f}.]

[So the two friends looked everywhere.|They looked and looked.] At last, {f} looked {spot3}. "Here it is!" {fhe}
[called|shouted]. [{h} was so happy that {he} gave {f} a big hug.|{h} jumped for joy.] "Thank you, {f}! [You are a
true friend.|I could not have found it without you.]" [After that, they played with the {thing} together.|{h} let {f}
play with the {thing} all afternoon.]
""",
}

STUCK = {
    "hero": LAND,
    "friend": CLIMBERS,
    "pick": {
        "weather": ["windy", "sunny", "bright"],
        "toy": ["red kite", "blue balloon", "yellow hat", "new ball", "paper plane", "green scarf"],
        "first,second": [
            ("jumped as high as {he} could", "threw a stick at it"),
            ("shook the tree", "jumped up and down"),
            ("tried to climb the tree", "poked it with a long branch"),
        ],
    },
    "text": """
One {weather} day, {h} was playing with {his} {toy}. Suddenly, a strong wind came and blew it away. The {toy} [flew
up, up, up and] got stuck in a tall tree.

{h} {first}, but the {toy} did not come down. Then {he} {second}, but it still did not come down. ["I will never get
it back," said {h}.|{h} sat down under the tree and sighed.]

A {fkind} named {f} was passing by. "What is wrong?" asked {f}. "My {toy} is stuck in the tree," said {h}. ["I am good
at climbing," said {f}. "I can help you!"|"That is easy for me," said {f}. "Watch this!"] {f} climbed up the tree and
[soon|quickly] came back with the {toy}. "Thank you so much!" said {h}. ["Would you like to play with me?" "Yes!" said
{f}.|"You are very kind."] They played [together all day|until it was time for dinner].
""",
}

LONELY = {
    "pick": {
        "food": FOODS,
        "game": ["hide and seek", "catch", "tag by the river", "in the meadow", "with a ball"],
    },
    "text": """
But {h} had no one to play with. {he} felt [lonely|a little sad]. One day, a {fkind} named {f} moved into the house
next door. {h} wanted to say hello, but {he} was [too shy|afraid that {f} would not like {him}].

[{his} mother smiled.|{his} grandmother said, "A friend is someone you are kind to first."] "Why don't we bake
something for our new neighbor?" [she|{his} mother] asked. So {h} made a {food} and [carried it next door|knocked on
the door of {f}]. "Hello," {he} said in a small voice. "My name is {h}. I made this for you."

{f} smiled. "Thank you! [I was lonely too.|I did not know anyone here.] Will you be my friend?" "Yes!" said {h}. They
shared the {food} and played {game}. [{h} was not lonely anymore.|{h} learned that saying hello can be the start of
something wonderful.]
""",
}

STORM = {
    "pick": {
        "weather": ["windy", "cold", "warm", "sunny"],
        "shelter": ["a small cave", "a hollow tree", "an old barn", "a little hut", "a wooden bridge"],
        "sound": ["a soft cry", "someone crying", "a tiny voice", "a strange noise"],
        "fun": ["told funny stories", "sang songs", "counted the drops of rain", "played a guessing game"],
    },
    "text": """
One afternoon, {h} was far from home when the sky turned dark. The wind began to blow, and big drops of rain fell
down. ["Boom!" went the thunder.|There was a loud boom of thunder.] {h} ran as fast as {he} could and found {shelter}.

It was [dark and quiet|dry] there. Then {h} heard {sound}. "Who is there?" asked {h}. "It is me, {f}," said a
[little|small] {fkind}. "I am afraid of the storm." {h} was afraid too, but {he} sat down next to {f}. ["We can be
brave together," said {h}.|"Do not be afraid," said {h}. "Storms always pass."] They {fun} and forgot about the
thunder.

Soon the rain stopped, and the sun came out. [A big rainbow was in the sky.|There was a beautiful rainbow over the
hills.] "Look!" said {f}. "The storm is over!" [{h} walked {f} home.|The two friends walked home together.] {h}
learned that [being brave is easier with a friend|even the darkest storm has an end].
""",
}

GARDEN = {
    "pick": {
        "weather": FINE,
        "seed,plant,result": [
            ("a tiny seed", "a tall sunflower", "Its head was as big as a plate."),
            ("a pumpkin seed", "a huge pumpkin", "It was bigger than a chair!"),
            ("an apple seed", "a little apple tree", "One day it would be full of apples."),
            ("a bean", "a green bean plant", "It climbed all the way to the roof."),
            ("a strawberry seed", "a strawberry plant", "It was full of sweet red berries."),
        ],
        "giver": ["{his} grandmother", "an old farmer", "a kind neighbor", "{his} father"],
    },
    "text": """
One spring day, {giver} gave {h} {seed}. "Plant it and take care of it," [said {giver}|{h} was told]. {h} dug a hole
in the garden, put the seed in it, and gave it some water.

The next day, {h} ran to the garden, but there was nothing to see. {he} waited one day, and two days, and three days.
Still nothing! ["It does not work," said {h}.|{h} wanted to give up.] {his} friend {f} the {fkind} came by. ["Good
things take time," said {f}.|"You must be patient," said {f}.] "Give it water every day, and wait."

So {h} gave the seed water every day. [It rained, and the sun shone.|The sun was warm and the rain was soft.] Then,
one morning, a small green leaf came out of the ground. It grew and grew until it was {plant}. {result} "You were
right, {f}!" said {h}. "[Good things take time.|I am glad that I waited.]"
""",
}

RACE = {
    "hero": ["rabbit", "fox", "deer", "pony", "puppy", "cat", "goat"],
    "friend": ["turtle", "snail", "hedgehog", "mole", "duck", "frog"],
    "pick": {
        "weather": FINE,
        "goal": ["the old oak tree", "the big rock", "the wooden bridge", "the windmill", "the red barn"],
        "stop": [
            "lay down under a tree and fell asleep",
            "stopped to eat some berries",
            "stopped to look at {his} face in the pond",
            "sat down to take a long rest",
        ],
    },
    "text": """
{h} could run very fast, and {he} [was very proud of it|told everyone about it]. "I am the fastest of all!" {he} said.
"[Nobody can win against me.|Who wants to race with me?]" "I will race with you," said {f} the {fkind}. {h} laughed.
"You? You are so slow!" But {f} [only smiled|was not afraid].

The race to {goal} began. {h} ran [so fast that {f} was soon far behind|away like the wind]. "I have a lot of time,"
{he} thought. So {he} {stop}. {f} did not stop. Step by step, {fhe} went on and on.

When {h} [looked up|started to run again], {f} was almost at {goal}. {h} ran as fast as {he} could, but it was too
late. {f} had won! [All the animals cheered.|Everyone clapped for {f}.] "I am sorry that I laughed at you," said {h}.
"[You did very well.|You are a great racer.]" "Thank you," said {f}. [{h} learned not to be too proud.|Slow and steady
wins the race.]
""",
}

TRUTH = {
    "pick": {
        "thing,fix": [
            ("blue vase", "glued it back together"),
            ("big clock", "put all the pieces back"),
            ("favorite cup", "painted a new one"),
            ("flower pot", "planted the flowers in a new pot"),
            ("pretty plate", "glued the pieces together"),
        ],
        "owner": ["mother", "grandmother", "father", "teacher", "aunt"],
        "deed": ["running through the house", "playing with a ball inside", "dancing around the table", "jumping on the chair"],
    },
    "text": """
One day, {h} was {deed}. Crash! The {thing} fell down and broke. It belonged to {his} {owner}. [{h} was scared.|{h}
did not know what to do.] {he} [hid the pieces under the bed|put the pieces in a box and closed it].

At dinner, {h} could not eat. {his} [tummy hurt|heart felt heavy]. {his} friend {f} the {fkind} [asked, "What is
wrong?"|saw that something was wrong.] {h} told {f} about the {thing}. ["You should tell the truth," said {f}.|"It is
always better to tell the truth," said {f}.] "I will come with you."

So {h} went to {his} {owner} and said, "I broke your {thing}. I am very sorry." {His} {owner} was quiet for a moment.
Then came a smile and a [big|warm] hug. "Thank you for telling me the truth," said {his} {owner}. "[That was very
brave.|The truth is more important than a {thing}.]" Together they {fix}. {h} felt [much better|light and happy
again].
""",
}

RIVER = {
    "hero": LAND,
    "pick": {
        "weather": FINE,
        "goal": ["visit {his} grandmother", "pick the sweet berries", "see the big fair", "bring a letter to {his} uncle"],
        "fkind,how": [
            ("beaver", "{f} cut down a tree, and it fell across the river like a bridge"),
            ("turtle", '"Sit on my back," said {f}, and {fhe} swam slowly to the other side'),
            ("duck", "{f} brought a little boat and pulled it across the water"),
            ("otter", "{f} showed {him} a place where big stones made a path across the water"),
            ("elephant", "{f} lifted {him} up and walked right through the water"),
        ],
        "food": FOODS,
    },
    "text": """
One {weather} day, {h} wanted to {goal} on the other side of the river. But the bridge was [broken|gone]! The water
was deep and cold, and {h} could not swim. ["How will I get across?" {he} asked.|{h} sat down and thought hard.]

"Can I help you?" said a voice. It was {f} the {fkind}. "I need to cross the river," said {h}. ["I know a way!" said
{f}.|"I can help you with that," said {f}.] {how}. Soon {h} was safe on the other side. "Thank you, {f}!" {he} said.

On the way back, {h} brought a {food} for {f}. ["You helped me, and I want to say thank you," said {h}.|"This is for
you," said {h}.] They sat by the river and ate it together. [Kindness always comes back.|It was the best {food} they
had ever tasted.]
""",
}

GIFT = {
    "pick": {
        "who": ["mother", "grandmother", "grandfather", "father", "aunt"],
        "craft,made": [
            ("a crown of flowers", "picked red, white and yellow flowers in the meadow"),
            ("a necklace of shells", "found pretty shells on the beach"),
            ("a picture", "painted the house, the trees and the sun"),
            ("a little song", "sat under a tree and wrote down the words"),
            ("a small wooden boat", "found a piece of wood by the river"),
            ("a warm scarf", "worked with soft red wool all day"),
        ],
        "shop": ["a silver ring", "a big cake", "a golden watch", "a new coat"],
    },
    "text": """
It was the birthday of {his} {who}, and {h} wanted to give a present. {he} saw {shop} in the shop, but {he} had [no
money|only one coin]. {h} [walked home slowly|was sad].

On the way, {he} met {f} the {fkind}. "I have no present," said {h}. {f} thought for a while. ["The best presents are
made with love," {fhe} said.|"Why don't you make something yourself?" {fhe} said.] "What a good idea!" said {h}. {he}
{made}. {f} helped {him}, and soon they had made {craft}.

In the evening, {h} gave {his} {who} {craft}. ["Did you make this for me?"|"Is this for me?"] asked {his} {who}.
"Yes," said {h}. "Happy birthday!" [It was the best present of all.|{His} {who} gave {him} a big hug and said, "This
is the best present I have ever had."]
""",
}

NIGHT = {
    "friends": True,
    "pick": {
        "noise,real": [
            ("a scratching noise", "a branch touching the window"),
            ("a tapping noise", "the rain on the roof"),
            ("a deep hoot", "an owl singing to the moon"),
            ("a rustling noise", "a little leaf dancing in the wind"),
            ("a squeaking noise", "the old gate moving in the wind"),
        ],
        "light": ["a small lantern", "a candle", "a jar of fireflies", "a little lamp"],
    },
    "text": """
But {h} was afraid of the dark. Every night, {he} [hid under the blanket|could not sleep]. One night, {he} heard
{noise}. "[It must be a monster!|What is that?]" whispered {h}.

{his} friend {f} the {fkind} was [staying for the night|sleeping over]. {f} woke up and lit {light}. ["Let us go and
see," said {f}.|"Come with me," said {f}. "We will look together."] Slowly, they [opened the door|walked outside] and
looked around. It was only {real}! {h} began to laugh. "I was afraid of {real}!"

Then {f} pointed at the sky. ["Look at all the stars," {fhe} said.|"The dark is full of beautiful things," {fhe}
said.] "You can only see them in the dark." {h} looked up and smiled. The dark was not so scary after all. [After
that, {he} was not afraid anymore.|From then on, {h} said good night to the stars every evening.]
""",
}

SHARING = {
    "pick": {
        "food": FOODS,
        "excuse": ["It is all mine", "I found it first", "There is not enough", "I want to keep it"],
    },
    "text": """
One day, {h} had a {food}. It was big, and it smelled so good! {f} the {fkind} came by and said, "I am so hungry. May
I have some?" But {h} did not want to share. "No," {he} said. "{excuse}." {f} walked away [sadly|with tears in {fhis}
eyes].

{h} sat down to eat alone. But the {food} did not taste good. [It was no fun to eat alone.|{h} kept thinking about
{f}.] {he} felt bad. "[I was not kind|I should have shared]," {he} said. {he} took the {food} and ran after {f}.

"Wait, {f}!" called {h}. "I am sorry. Please eat with me." {f} smiled. "Thank you, {h}!" They sat down [under a
tree|in the grass] and shared the {food}. Now it tasted [wonderful|better than ever]. {h} learned that [sharing makes
everything better|food tastes best with a friend].
""",
}

BABY = {
    "pick": {
        "baby,mother,spot": [
            ("a baby bird", "the mother bird", "in a nest in the apple tree"),
            ("a tiny duckling", "the mother duck", "on the pond with the other ducklings"),
            ("a little lamb", "the mother sheep", "on the green hill"),
            ("a small bear cub", "the mother bear", "near the honey tree"),
            ("a little bunny", "the mother rabbit", "in a hole under the hedge"),
        ],
        "food": FOODS,
        "f": ["Grandpa Owl", "Wise Old Owl", "Mister Toad", "Old Turtle", "Mister Crow"],
    },
    "text": """
One {weather} morning, {h} found {baby} on the path. It was all alone and crying. "Where is your mother?" asked {h}.
"I do not know," said the little one. "I am lost." ["Don't cry," said {h}. "I will help you."|{h} felt sorry for the
little one. "We will find her," {he} said.]

They walked [and walked|through the woods], but they did not see {mother}. Then they came to {f}, who knew everything.
"Have you seen {mother}?" asked {h}. "[Yes, I have|I think so]," said {f}. "She is looking for her baby {spot}." {h}
thanked {f} and hurried on.

There she was! {mother} was so happy to see her baby again. "Thank you for being so kind," she said, and she gave {h}
a {food}. [{h} waved goodbye and skipped home.|{h} went home with a warm feeling in {his} heart.] Helping others [made
{him} happy|is the best feeling of all].
""",
}

MAP = {
    "friends": True,
    "pick": {
        "weather": FINE,
        "found": ["an old map", "a strange map", "a map with a red cross", "a letter with a map"],
        "spot": SPOTS,
        "far*2": ["over the hill", "across the stream", "through the dark woods", "past the windmill", "along the beach"],
        "treasure,then": [
            ("a box full of books", "They read the books together every evening."),
            ("a bag of gold coins", "They gave the coins to those who had less."),
            ("a big jar of candy", "They shared the candy with all their friends."),
            ("a music box", "When they opened it, it played a lovely song."),
            ("a note that said: friendship is the real treasure", "They looked at each other and laughed, because it was true."),
        ],
    },
    "text": """
One {weather} day, {h} found {found} {spot}. "A treasure map!" {he} said. {h} ran to {his} friend {f} the {fkind}.
"Look what I found! [Will you come with me?|Let us find the treasure!]" "Yes, [let us go|what an adventure]!" said
{f}.

They walked {far1}. Then they went {far2}. [It was a long way, and {h} was tired.|The way was long.] ["Should we turn
back?" asked {h}. "No," said {f}. "We are almost there."|"Do not give up," said {f}.] At last they came to [a big tree
with a hole|a small cave]. Inside was {treasure}!

{then} [It was a great adventure.|{h} was glad that {f} had come along.] "[A treasure is better when you share it|I
will never forget this day]," said {h}.
""",
}

LEARN = {
    "pick": {
        "skill,tries": [
            ("swim", "jumped into the pond, but {he} swallowed a lot of water"),
            ("ride a bicycle", "got on the bicycle, but {he} fell into the grass"),
            ("whistle", "blew and blew, but no sound came out"),
            ("dance", "turned around, but {he} tripped and fell"),
            ("skate on the ice", "stepped on the ice, but {he} slipped and fell down"),
            ("paint", "took a brush, but {he} only made a big mess"),
        ],
        "others": ["All the others could do it", "Everyone else made it look easy", "{his} brother could do it very well"],
    },
    "text": """
There was one thing that {h} wanted more than anything. {he} wanted to learn how to {skill}. {others}. One day, {h}
{tries}. [Some of the others laughed.|{h} felt silly.] "I will never learn it," said {h}.

{f} the {fkind} had seen everything. ["I could not do it at first either," said {f}.|"Nobody can do it the first
time," said {f}.] "You have to practice. Come, I will show you." So every day after [breakfast|lunch], {h} and {f}
practiced together. [The first day was hard. The second day was a little better.|Sometimes it went well, and sometimes
it did not.]

And then, one {weather} day, {h} did it! "Look, {f}! I can {skill}!" {he} shouted. {f} clapped and cheered. [{h} was
very proud.|"I knew you could do it," said {f}.] {h} learned that [you should never give up|with practice and a good
friend, you can do anything].
""",
}

SICK = {
    "friends": True,
    "pick": {
        "food": ["hot soup", "warm tea with honey", "sweet apples", "fresh bread", "chicken soup"],
        "cheer": ["read {fhim} a story", "sang a silly song", "told a funny joke", "made funny faces"],
        "later": ["The next day", "Two days later", "After a few days"],
    },
    "text": """
Every day, {h} played with {his} best friend, {f} the {fkind}. But one morning, {f} did not come out to play. {h}
knocked on the door. "Are you there, {f}?" "I am sick," said a weak voice. "[I have to stay in bed.|My head hurts, and
I am so cold.]"

{h} [ran home|hurried home] and made {food}. {he} put it in a basket and went back to {f}. ["This will make you feel
better," said {h}.|"I made this for you," said {h}.] {f} ate it all up. Then {h} {cheer}, and {f} laughed. ["I feel
better already," said {f}.|{f} closed {fhis} eyes and slept well that night.]

{later}, {f} was well again. "You took good care of me," said {f}. "[Thank you for being my friend.|You are the best
friend in the world.]" [And the two friends ran outside to play.|They went outside and played in the sun.]
""",
}

STAR = {
    "friends": True,
    "pick": {
        "landed": ["into the pond", "into the tall grass", "on top of the roof", "into the snow", "into the garden"],
        "way": [
            "climbed to the top of the highest hill",
            "built a very long ladder",
            "tied the star to a big kite",
            "asked the wind to help",
            "tied the star to three balloons",
        ],
        "wish": ["that all {his} friends would be happy", "for a good night for everyone", "that {f} would always be {his} friend"],
    },
    "text": """
One night, {h} looked out of the window. A little star fell from the sky, right {landed}! {h} ran outside. The star
was [small and bright|shining softly]. "Please help me," said the star. "I want to go home."

{h} did not know how to reach the sky, so {he} [asked|woke up] {his} friend {f} the {fkind}. ["The sky is so high,"
said {f}, "but I have an idea."|"I have an idea!" said {f}.] Together they {way}. Up, up, up went the star, until it
was back in the sky.

"Thank you!" called the star. "[For your kindness, you may make a wish.|Now you may make a wish.]" {h} closed {his}
eyes and wished {wish}. [And the wish came true.|The star shone brighter than all the others.] Every night, {h} [waved
at the star|looked up and said good night to the little star].
""",
}

HOUSE = {
    "pick": {
        "damage,fix": [
            ("the roof flew away", "put a new roof on the house"),
            ("a tree fell on the house", "built new walls of strong wood"),
            ("the door and the windows broke", "made a new door and new windows"),
            ("the house fell down", "built a new house of stone"),
        ],
        "bring*2": ["some wood", "a hammer", "a bag of nails", "a long rope", "a pot of paint", "a big saw"],
        "food": FOODS,
        "g": ["Bear", "Goat", "Badger", "Beaver", "Mole"],
    },
    "text": """
One night, there was a big storm, and {damage}. In the morning, {h} stood [outside and cried|in front of the house and
did not know what to do]. "[Where will I live now?|What will I do?]" {he} said.

{f} the {fkind} came by and saw it. "We will help you," said {f}. {fhe} called all the neighbors. {f} brought
{bring1}, and Mister {g} brought {bring2}. [Everyone worked hard.|They worked from morning until night.] They sang
while they worked, and together they {fix}.

When it was done, {h} was so happy. "[How can I ever thank you?|You are the best friends in the world!]" {he} said.
{he} made a {food} for everyone, and they had a [party|big dinner] in the [new|little] house. [Many hands make light
work.|Together, even a big job becomes small.]
""",
}

WINTER = {
    "pick": {
        "weather": FINE,
        "worker": ["{h} gathered food for the winter", "{h} worked in the garden", "{h} put wood behind the house"],
        "lazy": ["lay in the sun", "played the fiddle", "slept in the grass", "sang and danced"],
        "food": FOODS,
        "plan": ["I will do it tomorrow", "Winter is far away", "There is a lot of time"],
    },
    "text": """
All summer long, {worker}. {his} neighbor, {f} the {fkind}, {lazy} all day. "Come and play!" called {f}. "I have to
get ready for the winter," said {h}. "You should get ready too." But {f} only laughed. "{plan}," {fhe} said.

Then winter came. [Snow fell on the hills and the trees.|It was cold, and everything was white.] {h} was warm and had
enough to eat. But {f} had nothing. [One night, there was a knock at the door.|Cold and hungry, {f} knocked at the
door.] "Please help me, {h}," said {f}. "[I was foolish.|I should have listened to you.]"

{h} opened the door. "Come in," {he} said, and {he} gave {f} a warm place by the fire and a {food}. {f} never forgot
it. The next summer, {f} [worked hard|was the first to start working], and the two friends [sang while they
worked|helped each other].
""",
}

SMALL_HELP = {
    "hero": SMALL,
    "friend": ["lion", "elephant", "bear", "dragon", "pony"],
    "pick": {
        "trap,free": [
            ("was caught in a net", "pulled at the knots until the net was open"),
            ("had a sharp thorn in {fhis} foot", "carefully pulled the thorn out"),
            ("was stuck in a deep hole", "went to get help and showed the others the way"),
            ("could not find the way out of the dark woods", "knew every path and led the way"),
        ],
        "words": ["You are too small to help anyone", "What can someone so small do", "Small animals should stay home"],
    },
    "text": """
One day, {h} met a big {fkind} named {f}. "I want to help you," said {h}. {f} laughed. "{words}," {fhe} said. {h} was
sad, but {he} [said nothing|went on {his} way].

A few days later, {h} heard a loud cry. It was {f}! {f} {trap}. "[Help! Help!|Please, can anyone help me?]" {fhe}
called. [{h} was not afraid.|{h} hurried as fast as {he} could.] "I will help you," said {h}. {he} {free}. At last {f}
was safe.

"You are small, but you have a big heart," said {f}. "I am sorry that I laughed at you." ["That is all right," said
{h}.|{h} smiled. "Friends help each other," {he} said.] [Even the smallest can do great things.|After that, nobody
laughed at {h} again.]
""",
}

DAY = {
    "friends": True,
    "pick": {
        "place2,do1,do2": [
            ("the lake", "threw stones into the water", "fed the ducks"),
            ("the beach", "looked for shells", "built a castle of sand"),
            ("the market", "looked at all the fruit", "listened to the music"),
            ("the top of the hill", "flew a kite", "watched the clouds"),
            ("the big forest", "climbed a tree", "looked for berries"),
            ("the fair", "danced to the music", "played games"),
        ],
        "food": FOODS,
        "see": ["a family of rabbits", "a rainbow", "a red butterfly", "a big ship", "a funny clown", "a white horse"],
        "weather": FINE,
    },
    "text": """
One {weather} day, {h} asked {his} friend {f} the {fkind}, "Do you want to go to {place2} with me?" "[Yes,
please!|What a good idea!]" said {f}. They packed a {food} and [off they went|started to walk].

On the way, they saw {see}. "[Look at that!|How beautiful!]" said {f}. At {place2}, they {do1}, and after that they
{do2}. ["This is fun!" said {h}.|They laughed and laughed.] When they were hungry, they sat down and ate the {food}.

Then it was time to go home. [The sun was going down, and the sky was red.|The first stars came out.] "[I had a
wonderful day|This was a perfect day]," said {f}. "Me too," said {h}. "[Let us do it again tomorrow.|It is good to
have a friend like you.]"
""",
}

PLOTS = [
    LOST, STUCK, LONELY, STORM, GARDEN, RACE, TRUTH, RIVER, GIFT, NIGHT, SHARING, BABY, MAP, LEARN, SICK, STAR, HOUSE,
    WINTER, SMALL_HELP, DAY,
]  # fmt: skip
