// Labels, choices and help of the settings in Chinese, by the server's English text.

/** @type {Record<string, string>} */
export const SETTING_TEXTS = {
  "Agent ID": "代理 ID",
  "Answer timeout (s)": "完整回答超时（秒）",
  "Barge in": "说话打断",
  "Connect timeout (s)": "连接超时（秒）",
  "Context tokens": "上下文长度（词元）",
  "Default instructions": "默认指令",
  Detection: "结束检测方式",
  Eagerness: "积极程度",
  Engine: "引擎",
  "First token timeout (s)": "首个词元超时（秒）",
  Images: "图像",
  Language: "语言",
  Languages: "语言",
  "Max drafts": "草稿数上限",
  "Max output tokens": "回答长度上限（词元）",
  "Max requests": "最大请求数",
  "No speech": "无语音过滤",
  "Noise reduction": "降噪",
  "Prefix padding (ms)": "语音前保留（毫秒）",
  "Silence (ms)": "静音时长（毫秒）",
  "Starts thinking": "开头即思考",
  Strict: "严格",
  Temperature: "温度",
  Thinking: "思考",
  Threshold: "阈值",
  Token: "访问令牌",
  "Token timeout (s)": "词元间隔超时（秒）",
  Tools: "工具",
  URL: "地址",
  "Unload after (s)": "闲置卸载（秒）",
  Use: "控制方式",
  "Verify TLS": "验证 TLS 证书",
  conversation: "对话代理",
  far_field: "远场",
  high: "高",
  low: "低",
  medium: "中",
  near_field: "近场",
  normal: "普通",
  on: "开启",
  patient: "耐心",
  semantic_vad: "静音与词语",
  server_vad: "仅静音",
  strict: "严格",
  tools: "代理与工具",
  wake_word: "唤醒词或停止",
  "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the demo home is used.":
    "Home Assistant 的地址，例如 http://homeassistant.local:8123。留空：使用演示家居。",
  "Address of the API including its version: `http://127.0.0.1:8000/v1`.":
    "API 的地址，包括版本：`http://127.0.0.1:8000/v1`。",
  "Control of Home Assistant by a language model: by sentences to its conversation agent (conversation), or also by the tools of its MCP server, which needs an integration there (tools). Recognised commands are always sent as sentences.":
    "语言模型如何控制 Home Assistant：向其对话代理发送句子（对话代理），或同时使用其 MCP 服务器的工具（代理与工具，需要在那里安装集成）。识别出的命令始终以句子发送。",
  "Filter for words that were recognised in noise: off keeps all of them; normal drops those that the model itself doubts; strict also drops those that voice activity detection doubts. A request can override this with no_speech_threshold.":
    "过滤在噪声中识别出的词：“关闭”全部保留；“普通”去掉模型自身存疑的词；“严格”还会去掉语音活动检测存疑的词。请求可用 no_speech_threshold 覆盖此设置。",
  "Handling of the echo of an answer in the microphone, for clients without echo cancellation: none (off), the echo is cancelled (cancel), or the microphone is ignored while an answer plays (half_duplex).":
    "对没有回声消除的客户端，如何处理麦克风中的回答回声：不处理（关闭），消除回声（消除回声），或在播放回答时忽略麦克风（仅在安静时聆听）。",
  "How readily semantic_vad ends a turn: high is fastest, low waits longest.":
    "“静音与词语”检测判断发言结束的快慢：“高”最快，“低”等待最久。",
  "ISO 639-1 codes of the languages that the model understands. Empty: any.":
    "模型能理解的语言的 ISO 639-1 代码。留空：任何语言。",
  "Id of the conversation agent in Home Assistant that receives the sentences.":
    "接收句子的 Home Assistant 对话代理的 ID。",
  "Key that the server asks for; empty: none.": "服务器要求的密钥。留空：不需要。",
  "Language (ISO 639-1) of sessions whose client names none.":
    "客户端未指定语言的会话所用的语言（ISO 639-1）。",
  "Language of the sentences for Home Assistant. Empty: the user's language.":
    "发送给 Home Assistant 的句子的语言。留空：用户的语言。",
  "Long-lived access token, from the profile of the user whose rights Earshot gets.":
    "长期访问令牌，来自某个用户的个人资料；Earshot 将获得该用户的权限。",
  "Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a quarter of the context is used: servers refuse a prompt that leaves no room for the answer.":
    "最长的回答，包括思考；一次口头回答约 50 到 150 个词元。最多使用上下文的四分之一：若不给回答留出空间，服务器会拒绝请求。",
  "Longest wait between two tokens.": "两个词元之间的最长等待时间。",
  "Longest wait for a connection.": "等待连接的最长时间。",
  "Longest wait for an answer that is not streamed.": "等待非流式回答的最长时间。",
  "Maximum number of answers, over all sessions, that are started before it is certain that the user has finished. Unused ones cost money with a paid language model. 0: none.":
    "在确定用户说完之前，所有会话中最多提前开始的回答数。使用付费语言模型时，未用到的回答也要付费。0：不提前开始。",
  "Most requests at once; a further one waits. Not set: 16, or more with many drafts.":
    "同时发送的最大请求数；更多的请求会等待。未设置：16，草稿多时更多。",
  "Maximum number of tokens in one answer. Not set: no limit.":
    "一次回答的最大词元数。未设置：不限。",
  "Method of detecting the end of a turn. server_vad waits for silence_ms of silence; semantic_vad also considers the words, and waits as long as eagerness allows.":
    "如何检测发言结束。“仅静音”等待设定的静音时长；“静音与词语”还会考虑词语，等待时间由积极程度决定。",
  "Milliseconds of audio that are kept from before the first speech frame.":
    "保留语音开始之前多少毫秒的音频。",
  "Milliseconds of silence that end the user's turn. A lower value is faster, but interrupts people who pause.":
    "静音多少毫秒后视为发言结束。值越小越快，但会打断中途停顿的人。",
  "Model to load at start: a folder in models_dir, its short name (tiny, large-v3-turbo), pocketsphinx, the path of a folder, or auto.":
    "启动时加载的模型：models_dir 中的文件夹、其短名称（tiny、large-v3-turbo）、pocketsphinx、文件夹路径，或自动。",
  "Name of an engine (`earshot doctor` lists them), or auto.":
    "引擎名称（`earshot doctor` 会列出），或自动。",
  "Name of its engine.": "其引擎的名称。",
  "Name of the model; auto: the first that the server lists.":
    "模型名称；auto：服务器列出的第一个。",
  "Names of the tools that the language model may use. Not set: all tools.":
    "语言模型可以使用的工具的名称。未设置：全部工具。",
  "Rate of speech of the voice; 1 is normal.": "语音的语速；1 为正常。",
  "Reduction of steady noise before speech detection and recognition: none (off), a little, for a microphone near the mouth (near_field), or more, for one across the room (far_field).":
    "在语音检测和识别之前减少持续的噪声：不降噪（关闭），轻微降噪，适合靠近嘴边的麦克风（近场），或较强降噪，适合房间另一端的麦克风（远场）。",
  "Sampling temperature of the language model. Not set: the engine's default.":
    "语言模型的采样温度。未设置：引擎的默认值。",
  "Sampling temperature. Not set: the server's default.": "采样温度。未设置：服务器的默认值。",
  "Seconds without a use after which a model is unloaded. The default models and pinned ones stay. 0: a model stays until another one needs its memory.":
    "模型闲置多少秒后卸载。默认模型和固定的模型会保留。0：一直保留，直到另一个模型需要其内存。",
  "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192.":
    "上下文长度。未设置：以服务器所报为准（vLLM、llama.cpp、Ollama），否则为 8192。",
  "Speech probability at or above which a frame counts as speech.":
    "语音概率达到此值的音频帧即视为语音。",
  "Speech that interrupts an answer that is playing: any speech (on), only meaningful words (patient), only the wake word or a word that means stop (wake_word), or none (off).":
    "什么会打断正在播放的回答：任何说话（开启），仅有意义的词（耐心），仅唤醒词或“停”等词（唤醒词或停止），或不打断（关闭）。",
  "System prompt of the language model. It replaces Earshot's own.":
    "语言模型的系统提示词。它会取代 Earshot 自带的提示词。",
  "True: an unknown model name is an error (404) that lists the known ones. False: an unknown name means the server's default model. Names of OpenAI's service always mean the default model.":
    "开启：未知的模型名称会报错（404），并列出已知名称。关闭：未知名称表示服务器的默认模型。OpenAI 服务的模型名称始终表示默认模型。",
  "Voice of the answers: default, a voice, an engine, or engine/voice.":
    "回答的语音：自动、某个语音、某个引擎，或“引擎/语音”。",
  "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow.":
    "等待首个词元的时间，包括一次重试。等待的人会更早放弃，但刚加载的模型较慢。",
  "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty: sessions listen from the start.":
    "唤醒词，例如 okay_nabu。检测到之前忽略说话内容。留空：会话从一开始就聆听。",
  "Whether the chat template itself opens the thought. Text before `</think>` is not spoken then.":
    "聊天模板是否自行开启思考。此时 `</think>` 之前的文字不会读出。",
  "Whether the language model gets Earshot's own system prompt if there is no other. It asks for short spoken answers without markdown, names the date and the room, and is written in the language of the answer.":
    "没有其他提示词时，语言模型是否使用 Earshot 自带的系统提示词。它要求简短、不含 Markdown 的口语回答，说明日期和房间，并以回答的语言书写。",
  "Whether the model may call tools. Off for models that cannot.":
    "模型是否可以调用工具。不支持工具的模型请关闭。",
  "Whether the model may think before it answers, which takes seconds if it can.":
    "模型回答前是否可以思考。若模型支持，会花费数秒。",
  "Whether the model takes images, which no server announces.":
    "模型是否接受图像。服务器都不会说明这一点。",
  "Whether to verify the certificate of Home Assistant. False accepts any, such as a self-signed one.":
    "是否验证 Home Assistant 的证书。关闭：接受任何证书，包括自签名证书。",
};
