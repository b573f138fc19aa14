"use strict";
// This node, those that it talks with, and those whose updates come through others.

const FAR_MAX = 24;

/** `nodes`: [{name, kind: "near" | "far" | "gone", isOut, isSame, delay, isSilent, title}], without this node. */
function drawMap(place, nodes, label) {
  const width = Math.max(280, place.clientWidth), height = place.clientHeight;
  const near = nodes.filter((each) => each.kind !== "far"), far = nodes.filter((each) => each.kind === "far");
  const picture = mark("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const centre = { x: width / 2, y: height / 2 };
  const outer = { x: Math.min(width / 2 - 40, 260), y: height / 2 - 20 };
  const inner = far.length ? { x: outer.x * 0.58, y: outer.y * 0.56 } : { x: outer.x * 0.8, y: outer.y * 0.8 };
  const shown = far.slice(0, FAR_MAX);
  const placed = [...around(near, centre, inner, near.length % 2 ? -Math.PI / 2 : Math.PI / near.length - Math.PI / 2), ...around(shown, centre, outer, -Math.PI / 2 + 0.35)];
  for (const node of placed.filter((each) => each.kind === "near")) drawLink(picture, centre, node);
  for (const node of placed) drawNode(picture, node, near.length <= 10);
  picture.append(mark("circle", { class: "node own", cx: centre.x, cy: centre.y, r: 13 }));
  picture.append(mark("text", { class: "strong", x: centre.x, y: centre.y + 30, "text-anchor": "middle" }, "this node"));
  if (far.length > shown.length) {
    const more = `and ${whole.format(far.length - shown.length)} more`;
    picture.append(mark("text", { x: width - 4, y: height - 2, "text-anchor": "end" }, more));
  }
  place.replaceChildren(picture);
}

function around(nodes, centre, radius, start) {
  return nodes.map((node, number) => {
    const angle = start + 2 * Math.PI * number / nodes.length;
    return { ...node, x: centre.x + radius.x * Math.cos(angle), y: centre.y + radius.y * Math.sin(angle) };
  });
}

/** A line, with its arrow at the end that was dialled. */
function drawLink(picture, centre, node) {
  const same = node.isSame ? " same" : "";
  picture.append(mark("path", { class: `link${same}`, d: `M${centre.x} ${centre.y}L${node.x} ${node.y}` }));
  const [from, to, gap] = node.isOut ? [centre, node, 11] : [node, centre, 16];
  const angle = Math.atan2(to.y - from.y, to.x - from.x);
  const tip = { x: to.x - gap * Math.cos(angle), y: to.y - gap * Math.sin(angle) };
  const wing = (turn) => `${tip.x - 9 * Math.cos(angle + turn)} ${tip.y - 9 * Math.sin(angle + turn)}`;
  picture.append(mark("path", { class: `arrow${same}`, d: `M${tip.x} ${tip.y}L${wing(0.45)}L${wing(-0.45)}z` }));
}

function drawNode(picture, node, isLabelled) {
  const css = `node ${node.kind}${node.isSilent ? " silent" : ""}`, radius = node.kind === "far" ? 6 : 9;
  picture.append(mark("circle", { class: css, cx: node.x, cy: node.y, r: radius }, mark("title", {}, node.title)));
  if (!isLabelled || node.kind === "far") return;
  const below = node.y > picture.viewBox.baseVal.height / 2;
  const text = { x: node.x, y: node.y + (below ? 23 : -15), "text-anchor": "middle" };
  if (node.kind === "gone") text.class = "gone-text";
  picture.append(mark("text", text, node.kind === "gone" ? `${node.name} left` : node.name));
}
