// What the writer makes of these words, as the page asks for them. Made by recipes/gallery.py.

export const GALLERY = [
  {
    "kind": "everyday",
    "asked": "fisherman; net; sunrise",
    "text": "A fisherman uses a net to catch fish at sunrise."
  },
  {
    "kind": "everyday",
    "asked": "couple; walked; beach; sunset",
    "text": "A couple walked along the beach at sunset."
  },
  {
    "kind": "everyday",
    "asked": "people; waiting; bus; rain",
    "text": "People are waiting for the bus in the rain."
  },
  {
    "kind": "everyday",
    "asked": "library; quiet; rainy afternoon",
    "text": "The library was quiet on a rainy afternoon."
  },
  {
    "kind": "everyday",
    "asked": "workers; built; bridge; river",
    "text": "Workers built a bridge over the river."
  },
  {
    "kind": "everyday",
    "asked": "waves; crashed; rocks",
    "text": "The waves crashed against the rocks."
  },
  {
    "kind": "everyday",
    "asked": "[~read; girl; library; ?quiet]",
    "text": "The library was quiet for the girl to read."
  },
  {
    "kind": "everyday",
    "asked": "child|boy; ~climb; tree; !a",
    "text": "The child tried to climb the tree."
  },
  {
    "kind": "reviews",
    "asked": "waiter; friendly; dessert",
    "text": "The waiter was friendly and the dessert was delicious."
  },
  {
    "kind": "reviews",
    "asked": "delicious; love; mole; rice; back",
    "text": "I have been to this place many times and have never had a bad experience. The food is delicious and the service is friendly. I love the mole rice and the way it is cooked. I will definitely be back."
  },
  {
    "kind": "news",
    "asked": "prime minister; tax cuts; parliament",
    "text": "The prime minister said that the tax cuts would be implemented in the next parliament and that the government would be required to pay the tax."
  },
  {
    "kind": "wiki",
    "asked": "species; found; forests; Africa",
    "text": "The species is found in the forests of Africa."
  },
  {
    "kind": "wiki",
    "asked": "castle; built; century",
    "text": "The castle was built during the 11th century."
  }
];
