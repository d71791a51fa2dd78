// Labels, choices and help of the settings in Spanish, by the server's English text.

/** @type {Record<string, string>} */
export const SETTING_TEXTS = {
  "Agent ID": "Identificador del agente",
  "Answer timeout (s)": "Espera de una respuesta completa (s)",
  "Barge in": "Interrupción al hablar",
  "Connect timeout (s)": "Espera máxima de conexión (s)",
  "Context tokens": "Tamaño del contexto (tokens)",
  "Default instructions": "Instrucciones incluidas",
  Detection: "Detección del final",
  Eagerness: "Prontitud",
  Engine: "Motor",
  "First token timeout (s)": "Espera del primer token (s)",
  Images: "Imágenes",
  Language: "Idioma",
  Languages: "Idiomas",
  "Max drafts": "Máximo de borradores",
  "Max output tokens": "Respuesta más larga (tokens)",
  "Max requests": "Máximo de solicitudes",
  "No speech": "Ruidos sin habla",
  "Noise reduction": "Reducción de ruido",
  "Prefix padding (ms)": "Audio previo al habla (ms)",
  "Silence (ms)": "Silencio (ms)",
  "Starts thinking": "Empieza pensando",
  Strict: "Estricto",
  Temperature: "Temperatura",
  Thinking: "Razonamiento",
  Threshold: "Umbral",
  Token: "Token de acceso",
  "Token timeout (s)": "Espera entre tokens (s)",
  Tools: "Herramientas",
  URL: "Dirección",
  "Unload after (s)": "Descargar tras (s)",
  Use: "Forma de control",
  "Verify TLS": "Verificar el certificado TLS",
  conversation: "agente de conversación",
  far_field: "lejano",
  high: "alta",
  low: "baja",
  medium: "media",
  near_field: "cercano",
  normal: "habitual",
  on: "Activado",
  patient: "paciente",
  semantic_vad: "silencio y palabras",
  server_vad: "solo silencio",
  strict: "estricto",
  tools: "agente y herramientas",
  wake_word: "palabra de activación o alto",
  "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the demo home is used.":
    "Dirección de Home Assistant, por ejemplo http://homeassistant.local:8123. Vacía: se usa la casa de demostración.",
  "Address of the API including its version: `http://127.0.0.1:8000/v1`.":
    "Dirección de la API con su versión: `http://127.0.0.1:8000/v1`.",
  "Control of Home Assistant by a language model: by sentences to its conversation agent (conversation), or also by the tools of its MCP server, which needs an integration there (tools). Recognised commands are always sent as sentences.":
    "Cómo controla un modelo de lenguaje Home Assistant: con frases a su agente de conversación (agente de conversación), o también con las herramientas de su servidor MCP, que necesita una integración allí (agente y herramientas). Las órdenes reconocidas se envían siempre como frases.",
  "Filter for words that were recognised in noise: off keeps all of them; normal drops those that the model itself doubts; strict also drops those that voice activity detection doubts. A request can override this with no_speech_threshold.":
    "Filtro de las palabras reconocidas en el ruido: «Desactivado» las conserva todas; «habitual» descarta las que el propio modelo pone en duda; «estricto» descarta también las que pone en duda la detección de voz. Una petición puede cambiarlo con no_speech_threshold.",
  "Handling of the echo of an answer in the microphone, for clients without echo cancellation: none (off), the echo is cancelled (cancel), or the microphone is ignored while an answer plays (half_duplex).":
    "Tratamiento del eco de una respuesta en el micrófono, para clientes sin cancelación de eco: ninguno (Desactivado), se cancela el eco (Cancelarlo) o se ignora el micrófono mientras suena una respuesta (Escuchar solo en silencio).",
  "How readily semantic_vad ends a turn: high is fastest, low waits longest.":
    "Con qué rapidez da por terminado el turno la detección por silencio y palabras: «alta» es la más rápida, «baja» espera más.",
  "ISO 639-1 codes of the languages that the model understands. Empty: any.":
    "Códigos (ISO 639-1) de los idiomas que entiende el modelo. Vacío: cualquiera.",
  "Id of the conversation agent in Home Assistant that receives the sentences.":
    "Identificador del agente de conversación de Home Assistant que recibe las frases.",
  "Key that the server asks for; empty: none.": "Clave que pide el servidor. Vacía: ninguna.",
  "Language (ISO 639-1) of sessions whose client names none.":
    "Idioma (ISO 639-1) de las sesiones cuyo cliente no indica ninguno.",
  "Language of the sentences for Home Assistant. Empty: the user's language.":
    "Idioma de las frases para Home Assistant. Vacío: el del usuario.",
  "Long-lived access token, from the profile of the user whose rights Earshot gets.":
    "Token de acceso de larga duración, del perfil del usuario cuyos permisos recibe Earshot.",
  "Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a quarter of the context is used: servers refuse a prompt that leaves no room for the answer.":
    "Respuesta más larga, incluido el razonamiento; una respuesta hablada tiene de 50 a 150 tokens. Nunca se usa más de un cuarto del contexto: los servidores rechazan una petición que no deja sitio a la respuesta.",
  "Longest wait between two tokens.": "Espera máxima entre dos tokens.",
  "Longest wait for a connection.": "Espera máxima de una conexión.",
  "Longest wait for an answer that is not streamed.":
    "Espera máxima de una respuesta que no llega por partes.",
  "Maximum number of answers, over all sessions, that are started before it is certain that the user has finished. Unused ones cost money with a paid language model. 0: none.":
    "Máximo de respuestas, entre todas las sesiones, que se empiezan antes de saber con certeza que el usuario ha terminado. Las que no se usan cuestan dinero con un modelo de pago. 0: ninguna.",
  "Most requests at once; a further one waits. Not set: 16, or more with many drafts.":
    "Máximo de solicitudes a la vez; una más espera. Sin valor: 16, o más con muchos borradores.",
  "Maximum number of tokens in one answer. Not set: no limit.":
    "Máximo de tokens de una respuesta. Sin definir: sin límite.",
  "Method of detecting the end of a turn. server_vad waits for silence_ms of silence; semantic_vad also considers the words, and waits as long as eagerness allows.":
    "Cómo se detecta que has terminado de hablar. «solo silencio» espera el silencio fijado; «silencio y palabras» tiene en cuenta también las palabras y espera lo que permita la prontitud.",
  "Milliseconds of audio that are kept from before the first speech frame.":
    "Milisegundos de audio que se conservan de antes del comienzo del habla.",
  "Milliseconds of silence that end the user's turn. A lower value is faster, but interrupts people who pause.":
    "Milisegundos de silencio que terminan tu turno. Un valor menor es más rápido, pero interrumpe a quien hace una pausa.",
  "Model to load at start: a folder in models_dir, its short name (tiny, large-v3-turbo), pocketsphinx, the path of a folder, or auto.":
    "Modelo que se carga al arrancar: una carpeta de models_dir, su nombre corto (tiny, large-v3-turbo), pocketsphinx, la ruta de una carpeta, o automático.",
  "Name of an engine (`earshot doctor` lists them), or auto.":
    "Nombre de un motor (`earshot doctor` los enumera), o automático.",
  "Name of its engine.": "Nombre de su motor.",
  "Name of the model; auto: the first that the server lists.":
    "Nombre del modelo; auto: el primero que indica el servidor.",
  "Names of the tools that the language model may use. Not set: all tools.":
    "Nombres de las herramientas que puede usar el modelo de lenguaje. Sin definir: todas.",
  "Rate of speech of the voice; 1 is normal.": "Velocidad de la voz; 1 es la normal.",
  "Reduction of steady noise before speech detection and recognition: none (off), a little, for a microphone near the mouth (near_field), or more, for one across the room (far_field).":
    "Reducción del ruido constante antes del reconocimiento: ninguna (Desactivado), ligera, para un micrófono cerca de la boca (cercano), o mayor, para uno al otro lado de la habitación (lejano).",
  "Sampling temperature of the language model. Not set: the engine's default.":
    "Temperatura de muestreo del modelo de lenguaje. Sin definir: la del motor.",
  "Sampling temperature. Not set: the server's default.":
    "Temperatura de muestreo. Sin definir: la del servidor.",
  "Seconds without a use after which a model is unloaded. The default models and pinned ones stay. 0: a model stays until another one needs its memory.":
    "Segundos sin uso tras los que se descarga un modelo de la memoria. Los modelos predeterminados y los fijados se quedan. 0: un modelo se queda hasta que otro necesita su memoria.",
  "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192.":
    "Tamaño del contexto. Sin definir: el que indica el servidor (vLLM, llama.cpp, Ollama); si no, 8192.",
  "Speech probability at or above which a frame counts as speech.":
    "Probabilidad a partir de la cual un fragmento de audio cuenta como habla.",
  "Speech that interrupts an answer that is playing: any speech (on), only meaningful words (patient), only the wake word or a word that means stop (wake_word), or none (off).":
    "Qué interrumpe una respuesta que suena: cualquier habla (Activado), solo palabras con sentido (paciente), solo la palabra de activación o una como «para» (palabra de activación o alto) o nada (Desactivado).",
  "System prompt of the language model. It replaces Earshot's own.":
    "Instrucción de base del modelo de lenguaje. Sustituye a la de Earshot.",
  "True: an unknown model name is an error (404) that lists the known ones. False: an unknown name means the server's default model. Names of OpenAI's service always mean the default model.":
    "Activado: un nombre de modelo desconocido es un error (404) que enumera los conocidos. Desactivado: un nombre desconocido significa el modelo predeterminado del servidor. Los nombres del servicio de OpenAI significan siempre el predeterminado.",
  "Voice of the answers: default, a voice, an engine, or engine/voice.":
    "Voz de las respuestas: automática, una voz, un motor o motor/voz.",
  "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow.":
    "Espera del primer token, incluido un nuevo intento. Quien espera desiste antes, pero un modelo recién cargado es lento.",
  "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty: sessions listen from the start.":
    "Palabra de activación, por ejemplo okay_nabu. Hasta que se detecta, se ignora lo que se dice. Vacía: las sesiones escuchan desde el principio.",
  "Whether the chat template itself opens the thought. Text before `</think>` is not spoken then.":
    "Si la propia plantilla de chat abre el razonamiento. El texto anterior a `</think>` no se pronuncia entonces.",
  "Whether the language model gets Earshot's own system prompt if there is no other. It asks for short spoken answers without markdown, names the date and the room, and is written in the language of the answer.":
    "Si el modelo de lenguaje recibe la instrucción de Earshot cuando no hay otra. Pide respuestas habladas cortas sin Markdown, indica la fecha y la habitación, y está escrita en el idioma de la respuesta.",
  "Whether the model may call tools. Off for models that cannot.":
    "Si el modelo puede llamar a herramientas. Desactivado para los modelos que no saben hacerlo.",
  "Whether the model may think before it answers, which takes seconds if it can.":
    "Si el modelo puede razonar antes de responder. Eso tarda segundos si sabe hacerlo.",
  "Whether the model takes images, which no server announces.":
    "Si el modelo acepta imágenes. Ningún servidor lo anuncia.",
  "Whether to verify the certificate of Home Assistant. False accepts any, such as a self-signed one.":
    "Si se verifica el certificado de Home Assistant. Desactivado: se acepta cualquiera, también uno autofirmado.",
};
