// Where a search lands first: at the glossary's entry, if Sphinx has read the glossary in this build
// (it forgets the entries of pages that did not change); then in the chapters in the order in which
// they are read, and at functions of that name last.
var Scorer = {
  score([page, title, anchor, what, score]) {
    const chapter = page.match(/notebooks\/(\d+)_/);
    if (page.startsWith("book/api")) return score - 20;
    const weight = { "book/changelog": -15, "book/glossary": anchor ? 6 : 0 };
    return score + (chapter ? 4 - Number(chapter[1]) / 100 : weight[page] ?? -0.5);
  },
  // As Sphinx has them.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
