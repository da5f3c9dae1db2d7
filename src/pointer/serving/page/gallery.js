// What the writer makes of these words, as the page asks for them. Made by recipes/gallery.py.

export const GALLERY = [
  {
    "kind": "everyday",
    "asked": "kitten; ball of yarn; floor",
    "text": "A kitten is playing with a ball of yarn on the floor."
  },
  {
    "kind": "everyday",
    "asked": "couple; walked; beach; sunset",
    "text": "A couple walked along the beach at sunset."
  },
  {
    "kind": "everyday",
    "asked": "people; waiting; bus; rain",
    "text": "People are waiting for a bus in the rain."
  },
  {
    "kind": "everyday",
    "asked": "library; quiet; rainy afternoon",
    "text": "The library is quiet on a rainy afternoon."
  },
  {
    "kind": "everyday",
    "asked": "workers; built; bridge; river",
    "text": "Workers have built a bridge over the river."
  },
  {
    "kind": "everyday",
    "asked": "market; fresh fish; morning",
    "text": "I went to the market for fresh fish for breakfast this morning."
  },
  {
    "kind": "everyday",
    "asked": "[~bake; grandmother; cake; ?warm]",
    "text": "The cake was warm and the grandmother was able to bake it."
  },
  {
    "kind": "everyday",
    "asked": "child|boy; ~climb; tree; !a",
    "text": "The child climbs out of the tree."
  },
  {
    "kind": "reviews",
    "asked": "waiter; friendly; dessert",
    "text": "The waiter was friendly and the dessert was delicious."
  },
  {
    "kind": "reviews",
    "asked": "delicious; love; mole; rice; back",
    "text": "I have been to this place several times and have never had a bad experience. The food is delicious and the service is great. I love the mole and the rice. I will definitely be back."
  },
  {
    "kind": "news",
    "asked": "prime minister; tax cuts; parliament",
    "text": "The prime minister said the tax cuts would be implemented in the next two years and that the government would be able to pass the new tax cuts into parliament."
  },
  {
    "kind": "wiki",
    "asked": "species; found; forests; Africa",
    "text": "The species is found in the forests of Africa."
  },
  {
    "kind": "wiki",
    "asked": "village; population; county",
    "text": "The village has a population of 1,000, and is part of the county."
  }
];
