// The quality of a call: figures and a grade from the reports of browser and server. Pure; `report`
// is from RTCPeerConnection.getStats(), `connection` from an earshot.connection event.

/**
 * @typedef {Record<string, any>} Sample values of one report of the browser
 * @typedef {{ samples: Sample[], server: any }} Quality `server`: the server's report
 * @typedef {Record<"round_trip" | "loss_up" | "loss_down" | "jitter_up" | "jitter_down" | "buffer_up"
 *   | "buffer_down", number | null> & Record<"codec" | "protocol" | "local" | "remote", string | null>
 *   & { transport: string }} Figures times in ms, losses as shares; up is from here to the server
 * @typedef {"loss" | "jitter" | "round_trip"} Figure
 * @typedef {{ grade: string, because: Figure | null }} Verdict because: the worst figure, if it is not
 *   good
 */

// There is one report a second. Loss is measured over ten seconds, because one lost packet is already
// 2 % of a second.
const MAX_SAMPLES = 11;

// [fair from, poor from]: loss as a share, the others in ms. Opus hides single losses; a loss of one
// tenth costs words. An even flow needs no buffer beyond one packet (20 ms). The round trip adds to
// each response's latency.
/** @type {Record<Figure, number[]>} */
const LIMITS = { loss: [0.02, 0.08], jitter: [30, 80], round_trip: [200, 400] };
const GRADES = ["good", "fair", "poor"];

/** @returns {Quality} */
export const emptyQuality = () => ({ samples: [], server: null });

/**
 * Returns the quality with a newer report of the server.
 *
 * @param {Quality} quality
 * @param {any} connection
 * @returns {Quality}
 */
export const withServerReport = (quality, connection) => ({ ...quality, server: connection });

/**
 * Returns the quality with a newer report of the browser.
 *
 * @param {Quality} quality
 * @param {RTCStatsReport | Map<string, any>} report
 * @returns {Quality}
 */
export const withReport = (quality, report) => ({
  ...quality,
  samples: [...quality.samples, sampleOf([...report.values()])].slice(-MAX_SAMPLES),
});

/**
 * Returns the present figures; null for those that are not known. Up is from here to the server.
 *
 * @param {Quality} quality
 * @returns {Figures}
 */
export function figures({ samples, server }) {
  const newest = samples.at(-1) ?? {};
  const oldest = samples[0] ?? {};
  const since = (/** @type {string} */ name) =>
    (newest[name] ?? 0) - (samples.length > 1 ? (oldest[name] ?? 0) : 0);
  const up = server?.up ?? {};
  const down = server?.down ?? {};
  const { codec, localType, remoteType, protocol } = newest;
  return {
    round_trip: newest.roundTrip ?? server?.round_trip_ms ?? null,
    loss_up: up.loss ?? newest.lossUp ?? null,
    loss_down:
      share(Math.max(0, since("lost")), since("lost") + since("received")) ?? down.loss ?? null,
    jitter_up: up.jitter_ms ?? newest.jitterUp ?? null,
    jitter_down: newest.jitter ?? down.jitter_ms ?? null,
    buffer_up: up.buffer_ms ?? null,
    buffer_down: share(1_000 * since("delay"), since("emitted")),
    codec: codec ?? server?.codec ?? null,
    protocol: protocol ?? server?.protocol ?? null,
    local: localType ?? server?.remote_candidate ?? null,
    remote: remoteType ?? server?.local_candidate ?? null,
    transport: server?.transport ?? "webrtc",
  };
}

/**
 * Returns { grade: good | fair | poor, because: loss | jitter | round_trip | null }. Null if no
 * figure is known.
 *
 * @param {Figures} known
 * @returns {Verdict | null}
 */
export function graded(known) {
  /** @type {[Figure, number | null][]} */
  const values = [
    ["loss", worse(known.loss_up, known.loss_down)],
    ["jitter", worse(known.jitter_up, known.jitter_down)],
    ["round_trip", known.round_trip],
  ];
  const levels = values.flatMap(([name, value]) =>
    value === null ? [] : [{ name, level: LIMITS[name].filter((limit) => value >= limit).length }],
  );
  if (!levels.length) return null;
  const worst = levels.reduce((a, b) => (b.level > a.level ? b : a));
  return { grade: GRADES[worst.level], because: worst.level ? worst.name : null };
}

/**
 * Returns the values of one report that the figures need. Some browsers do not report all of them.
 *
 * @param {any[]} stats
 * @returns {Sample}
 */
function sampleOf(stats) {
  const audio = (/** @type {string} */ type) =>
    stats.find((one) => one.type === type && (one.kind ?? "audio") === "audio");
  const byId = (/** @type {string} */ id) => stats.find((one) => one.id === id);
  const inbound = audio("inbound-rtp") ?? {};
  const remote = audio("remote-inbound-rtp") ?? {};
  const pair = selectedPair(stats, byId) ?? {};
  const local = byId(pair.localCandidateId) ?? {};
  return {
    received: inbound.packetsReceived,
    lost: inbound.packetsLost,
    jitter: ms(inbound.jitter),
    delay: inbound.jitterBufferDelay,
    emitted: inbound.jitterBufferEmittedCount,
    lossUp: remote.fractionLost,
    jitterUp: ms(remote.jitter),
    roundTrip: ms(pair.currentRoundTripTime ?? remote.roundTripTime),
    codec: byId(inbound.codecId)?.mimeType?.split("/")[1],
    localType: local.candidateType,
    remoteType: byId(pair.remoteCandidateId)?.candidateType,
    protocol: local.relayProtocol ?? local.protocol,
  };
}

/**
 * Returns the pair of ICE candidates over which the call goes. Firefox marks it in another way.
 *
 * @param {any[]} stats
 * @param {(id: string) => any} byId
 */
function selectedPair(stats, byId) {
  const chosen = stats.find((one) => one.type === "transport" && one.selectedCandidatePairId);
  if (chosen) return byId(chosen.selectedCandidatePairId);
  return stats.find(
    (one) => one.type === "candidate-pair" && one.nominated && one.state === "succeeded",
  );
}

/** @param {number} seconds */
const ms = (seconds) => (Number.isFinite(seconds) ? 1_000 * seconds : undefined);
/**
 * @param {number} part
 * @param {number} whole
 */
const share = (part, whole) => (whole > 0 ? part / whole : null);
/**
 * @param {number | null} a
 * @param {number | null} b
 */
const worse = (a, b) => (a === null || b === null ? (a ?? b) : Math.max(a, b));
