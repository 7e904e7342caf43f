// Series as Plotly's traces.

const MOST_BANDS = 8; // more of them on each other hide the lines

function curveTraces(one, banded) {
  const colour = ink(one.colour);
  const name = literal(shortened(one.text));
  const traces = [];
  if (one.low.length && banded) {
    traces.push({
      x: [...one.x, ...[...one.x].reverse()],
      y: [...one.high, ...[...one.low].reverse()],
      fill: "toself",
      fillcolor: faint(colour, 0.16),
      line: { width: 0 },
      mode: "lines",
      hoverinfo: "skip",
    });
  }
  traces.push({
    x: one.x,
    y: one.y,
    mode: "lines+markers",
    line: { color: colour, width: 2, dash: one.dash },
    marker: { color: colour, size: 7, symbol: one.symbol },
    text: one.x_text.map((x, i) => {
      const band = one.low.length ? `<br>${one.low_text[i]} to ${one.high_text[i]} over ${one.seeds} seeds` : "";
      return `<b>${name}</b><br>${one.y_text[i]} at ${x}${band}`;
    }),
    hovertemplate: "%{text}<extra></extra>",
  });
  return traces;
}

const STANDINGS = { front: "on the front", ambiguous: "on the front or dominated", dominated: "dominated" };

function paretoTraces(one, place) {
  const colour = ink(one.colour);
  const name = literal(shortened(one.text));
  // Filled: on the front for certain; half, as `halve` does it: it may be either; open: dominated, or no competitor.
  const fill = one.standing === "front" ? colour : css("--paper");
  const bars = (low, value, high) => ({
    type: "data",
    symmetric: false,
    array: [high - value],
    arrayminus: [value - low],
    visible: high > low,
    color: colour,
    thickness: 1.5,
  });
  return [
    {
      x: one.seed_x,
      y: one.seed_y,
      mode: "markers",
      marker: { color: faint(colour, 0.55), size: 5, symbol: one.symbol },
      text: one.seed.map((seed, i) => `<b>${name}</b>, seed ${seed}<br>${one.seed_y_text[i]} at ${one.seed_x_text[i]}`),
      hovertemplate: "%{text}<extra></extra>",
    },
    {
      uid: `${one.standing === "ambiguous" ? HALF : "mean-"}${place}`,
      x: one.x,
      y: one.y,
      mode: "markers",
      marker: {
        color: fill,
        size: 11,
        symbol: one.symbol,
        line: { color: colour, width: 2 },
      },
      error_x: bars(one.x_low, one.x[0], one.x_high),
      error_y: bars(one.low, one.y[0], one.high),
      text: [
        `<b>${name}</b><br>${one.y_text[0]}${one.spread_text ? " ± " + one.spread_text : ""} at ${one.x_text[0]}` +
          (one.seeds > 1 ? `<br>${one.low_text} to ${one.high_text} over ${one.seeds} seeds` : "") +
          (one.standing ? `<br>${STANDINGS[one.standing]}` : ""),
      ],
      hovertemplate: "%{text}<extra></extra>",
    },
  ];
}

const HALF = "half-"; // begins the id of a trace whose markers are half filled

/** Fill the left half of markers: Plotly has no such symbols, but its elements have the ids of their traces. */
function halve(plot, ground) {
  for (const marker of plot.querySelectorAll(`[class*=" trace${HALF}"] path.point`)) {
    const colour = getComputedStyle(marker).stroke;
    const id = `${HALF}${colour.replace(/\W+/g, "-")}`;
    const drawing = marker.closest("svg");
    drawing.querySelector(`#${id}`)?.remove(); // of the other scheme
    const gradient = svg("linearGradient", { id });
    gradient.append(
      svg("stop", { offset: 0.5, "stop-color": colour }),
      svg("stop", { offset: 0.5, "stop-color": ground }),
    );
    drawing.append(gradient);
    marker.style.fill = `url(#${id})`;
  }
}

function frontTrace(front) {
  return {
    x: front.x,
    y: front.y,
    mode: "lines",
    line: { color: css("--muted"), width: 1.5, shape: "hv" },
    hoverinfo: "skip",
  };
}

function axis(title, log) {
  return {
    title: { text: literal(title), standoff: 10 },
    type: log ? "log" : "linear",
    automargin: true,
    gridcolor: css("--grid"),
    linecolor: css("--muted"),
    zeroline: false,
    ticks: "outside",
    tickcolor: css("--muted"),
    exponentformat: "B",
    separatethousands: true,
    minexponent: 5,
    dtick: log ? "D2" : undefined,
  };
}

/** A level across the whole plot. */
function line(y, color, dash) {
  return { type: "line", layer: "below", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color, dash, width: 1.2 } };
}
