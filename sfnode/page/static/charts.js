"use strict";
// Values over the steps of a run, as lines in a picture of the width that there is.

const MARGIN = { left: 46, right: 14, top: 14, bottom: 26 };

/** Round values between least and most, about `wanted` of them. */
function ticks(least, most, wanted) {
  const rough = (most - least) / wanted || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(least / step - 1e-9) * step; at <= most + step * 1e-9; at += step) found.push(at);
  return { found, step };
}

function tickText(value, step) {
  const digits = String(Number(step.toPrecision(2))).split(".")[1] ?? "";
  return value.toFixed(Math.min(4, digits.length));
}

/**
 * Draws into `place`: `series` [{points: [[step, value]], css, dots, best}], `steps` of the run, `room` the least that the axis spans, `empty` what to say
 * where there is nothing yet, `label` for those who hear it, `text` of a value.
 */
function drawChart(place, chart) {
  const points = chart.series.flatMap((each) => each.points);
  if (!points.length) {
    place.replaceChildren(element("p", { class: "empty" }, chart.empty));
    return;
  }
  const width = Math.max(260, place.clientWidth), height = place.clientHeight;
  const scale = scaleOf(points, chart, width, height);
  const picture = mark("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.label });
  drawAxes(picture, scale, chart, width, height);
  for (const each of chart.series) drawSeries(picture, each, scale);
  place.replaceChildren(picture);
  follow(picture, chart, scale, width, height);
}

function scaleOf(points, chart, width, height) {
  const values = points.map((each) => each[1]), steps = points.map((each) => each[0]);
  let least = Math.min(...values), most = Math.max(...values);
  const room = Math.max((most - least || Math.abs(most) * 0.1 || 1) * 0.08, ((chart.room ?? 0) - (most - least)) / 2);
  least = Math.max(chart.least ?? -Infinity, least - room);
  most = Math.min(chart.most ?? Infinity, most + room);
  const last = Math.max(1, ...steps), right = last > chart.steps * 0.6 ? Math.max(chart.steps, last) : last * 1.1;
  const across = width - MARGIN.left - MARGIN.right, down = height - MARGIN.top - MARGIN.bottom;
  return {
    least, most, right,
    x: (step) => MARGIN.left + across * step / right,
    y: (value) => MARGIN.top + down * (most - value) / (most - least || 1),
  };
}

function drawAxes(picture, scale, chart, width, height) {
  const values = ticks(scale.least, scale.most, 5), steps = ticks(0, scale.right, width > 420 ? 6 : 3);
  for (const value of values.found) {
    const y = scale.y(value), text = chart.axis ? chart.axis(value) : tickText(value, values.step);
    picture.append(mark("path", { class: "rule", d: `M${MARGIN.left} ${y}H${width - MARGIN.right}` }));
    picture.append(mark("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, text));
  }
  for (const step of steps.found.filter((each) => Number.isInteger(each))) {
    const isLast = scale.x(step) > width - 34;
    const at = { x: scale.x(step), y: height - 6, "text-anchor": isLast ? "end" : "middle" };
    picture.append(mark("text", at, step === 0 ? "step 0" : whole.format(step)));
  }
}

function drawSeries(picture, series, scale) {
  const places = series.points.map(([step, value]) => `${scale.x(step).toFixed(1)},${scale.y(value).toFixed(1)}`);
  picture.append(mark("polyline", { class: `curve ${series.css}`, points: places.join(" ") }));
  if (!series.dots || series.points.length > 60) return;
  for (const [step, value] of series.points) {
    const css = `dot ${series.css}${step === series.best ? " best" : ""}`;
    picture.append(mark("circle", { class: css, cx: scale.x(step), cy: scale.y(value), r: step === series.best ? 4.5 : 3 }));
  }
}

/** The values where the pointer is. */
function follow(picture, chart, scale, width, height) {
  const cross = mark("g");
  picture.append(cross);
  picture.addEventListener("pointerleave", () => cross.replaceChildren());
  picture.addEventListener("pointermove", (event) => {
    const at = (event.clientX - picture.getBoundingClientRect().left) / width * width;
    const nearest = chart.series.filter((each) => each.points.length).map((each) => nearestOf(each, at, scale));
    const near = nearest.reduce((one, other) => Math.abs(scale.x(other[0]) - at) < Math.abs(scale.x(one[0]) - at) ? other : one);
    const x = scale.x(near[0]), isLeft = x < width / 2;
    cross.replaceChildren(
      mark("path", { class: "cross", d: `M${x} ${MARGIN.top}V${height - MARGIN.bottom}` }),
      mark("text", { class: "strong", x: x + (isLeft ? 8 : -8), y: MARGIN.top + 10, "text-anchor": isLeft ? "start" : "end" },
        `step ${whole.format(near[0])}: ${chart.text(near[1])}`));
  });
}

function nearestOf(series, at, scale) {
  return series.points.reduce((one, other) => Math.abs(scale.x(other[0]) - at) < Math.abs(scale.x(one[0]) - at) ? other : one);
}
