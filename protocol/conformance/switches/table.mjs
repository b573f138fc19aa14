// The form of the tables: [rule, what holds no more, text, what stands in its place, and further such pairs].

/** The rows about one module, whose text they change; the vectors that should notice come from this file. */
export function of(module, vectors, rows) {
  return rows.map(([rule, off, ...texts]) => {
    const edits = texts.flatMap((text, index) => (index % 2 === 0 ? [[text, texts[index + 1] ?? ""]] : []));
    return { rule, off, module, vectors, edits };
  });
}
