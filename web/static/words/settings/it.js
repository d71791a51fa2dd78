// Labels, choices and help of the settings in Italian, by the server's English text.

/** @type {Record<string, string>} */
export const SETTING_TEXTS = {
  "Agent ID": "Identificativo dell’agente",
  "Answer timeout (s)": "Attesa di una risposta intera (s)",
  "Barge in": "Interruzione parlando",
  "Connect timeout (s)": "Attesa massima della connessione (s)",
  "Context tokens": "Dimensione del contesto (token)",
  "Default instructions": "Istruzioni predefinite",
  Detection: "Rilevamento della fine",
  Eagerness: "Prontezza",
  Engine: "Motore",
  "First token timeout (s)": "Attesa del primo token (s)",
  Images: "Immagini",
  Language: "Lingua",
  Languages: "Lingue",
  "Max drafts": "Numero massimo di bozze",
  "Max output tokens": "Risposta più lunga (token)",
  "Max requests": "Numero massimo di richieste",
  "No speech": "Rumori senza parlato",
  "Noise reduction": "Riduzione del rumore",
  "Prefix padding (ms)": "Audio prima del parlato (ms)",
  "Silence (ms)": "Silenzio (ms)",
  "Starts thinking": "Inizia pensando",
  Strict: "Rigoroso",
  Temperature: "Temperatura",
  Thinking: "Ragionamento",
  Threshold: "Soglia",
  Token: "Token di accesso",
  "Token timeout (s)": "Attesa tra i token (s)",
  Tools: "Strumenti",
  URL: "Indirizzo",
  "Unload after (s)": "Scaricare dopo (s)",
  Use: "Modo di controllo",
  "Verify TLS": "Verifica il certificato TLS",
  conversation: "agente di conversazione",
  far_field: "lontano",
  high: "alta",
  low: "bassa",
  medium: "media",
  near_field: "vicino",
  normal: "consueto",
  on: "Attivo",
  patient: "paziente",
  semantic_vad: "silenzio e parole",
  server_vad: "solo silenzio",
  strict: "rigoroso",
  tools: "agente e strumenti",
  wake_word: "parola di attivazione o basta",
  "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the demo home is used.":
    "Indirizzo di Home Assistant, per esempio http://homeassistant.local:8123. Vuoto: si usa la casa dimostrativa.",
  "Address of the API including its version: `http://127.0.0.1:8000/v1`.":
    "Indirizzo dell’API, versione compresa: `http://127.0.0.1:8000/v1`.",
  "Control of Home Assistant by a language model: by sentences to its conversation agent (conversation), or also by the tools of its MCP server, which needs an integration there (tools). Recognised commands are always sent as sentences.":
    "Come un modello linguistico controlla Home Assistant: con frasi al suo agente di conversazione (agente di conversazione), oppure anche con gli strumenti del suo server MCP, che richiede un’integrazione (agente e strumenti). I comandi riconosciuti sono sempre inviati come frasi.",
  "Filter for words that were recognised in noise: off keeps all of them; normal drops those that the model itself doubts; strict also drops those that voice activity detection doubts. A request can override this with no_speech_threshold.":
    "Filtro delle parole riconosciute nel rumore: «Spento» le tiene tutte; «consueto» scarta quelle di cui il modello stesso dubita; «rigoroso» scarta anche quelle di cui dubita il rilevamento della voce. Una richiesta può cambiarlo con no_speech_threshold.",
  "Handling of the echo of an answer in the microphone, for clients without echo cancellation: none (off), the echo is cancelled (cancel), or the microphone is ignored while an answer plays (half_duplex).":
    "Gestione dell’eco di una risposta nel microfono, per i client senza cancellazione dell’eco: nessuna (Spento), l’eco viene annullata (Annullala), oppure il microfono è ignorato durante una risposta (Ascolta solo in silenzio).",
  "How readily semantic_vad ends a turn: high is fastest, low waits longest.":
    "Quanto presto il rilevamento con silenzio e parole chiude il turno: «alta» è il più rapido, «bassa» attende di più.",
  "ISO 639-1 codes of the languages that the model understands. Empty: any.":
    "Codici (ISO 639-1) delle lingue che il modello capisce. Vuoto: tutte.",
  "Id of the conversation agent in Home Assistant that receives the sentences.":
    "Identificativo dell’agente di conversazione di Home Assistant che riceve le frasi.",
  "Key that the server asks for; empty: none.": "Chiave richiesta dal server. Vuota: nessuna.",
  "Language (ISO 639-1) of sessions whose client names none.":
    "Lingua (ISO 639-1) delle sessioni il cui client non ne indica una.",
  "Language of the sentences for Home Assistant. Empty: the user's language.":
    "Lingua delle frasi per Home Assistant. Vuota: quella dell’utente.",
  "Long-lived access token, from the profile of the user whose rights Earshot gets.":
    "Token di accesso a lunga durata, dal profilo dell’utente di cui Earshot riceve i diritti.",
  "Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a quarter of the context is used: servers refuse a prompt that leaves no room for the answer.":
    "Risposta più lunga, ragionamento compreso; una risposta parlata ha da 50 a 150 token. Non si usa mai più di un quarto del contesto: i server rifiutano una richiesta che non lascia spazio alla risposta.",
  "Longest wait between two tokens.": "Attesa massima tra due token.",
  "Longest wait for a connection.": "Attesa massima di una connessione.",
  "Longest wait for an answer that is not streamed.":
    "Attesa massima di una risposta che non arriva a pezzi.",
  "Maximum number of answers, over all sessions, that are started before it is certain that the user has finished. Unused ones cost money with a paid language model. 0: none.":
    "Numero massimo di risposte, su tutte le sessioni, iniziate prima che sia certo che l’utente ha finito. Quelle non usate costano denaro con un modello a pagamento. 0: nessuna.",
  "Most requests at once; a further one waits. Not set: 16, or more with many drafts.":
    "Numero massimo di richieste insieme; una in più aspetta. Senza valore: 16, o di più con molte bozze.",
  "Maximum number of tokens in one answer. Not set: no limit.":
    "Numero massimo di token di una risposta. Non impostato: nessun limite.",
  "Method of detecting the end of a turn. server_vad waits for silence_ms of silence; semantic_vad also considers the words, and waits as long as eagerness allows.":
    "Come si riconosce che hai finito di parlare. «solo silenzio» attende il silenzio impostato; «silenzio e parole» considera anche le parole e attende quanto consente la prontezza.",
  "Milliseconds of audio that are kept from before the first speech frame.":
    "Millisecondi di audio conservati da prima dell’inizio del parlato.",
  "Milliseconds of silence that end the user's turn. A lower value is faster, but interrupts people who pause.":
    "Millisecondi di silenzio che chiudono il tuo turno. Un valore più basso è più rapido, ma interrompe chi fa una pausa.",
  "Model to load at start: a folder in models_dir, its short name (tiny, large-v3-turbo), pocketsphinx, the path of a folder, or auto.":
    "Modello caricato all’avvio: una cartella di models_dir, il suo nome breve (tiny, large-v3-turbo), pocketsphinx, il percorso di una cartella, oppure automatico.",
  "Name of an engine (`earshot doctor` lists them), or auto.":
    "Nome di un motore (`earshot doctor` li elenca), oppure automatico.",
  "Name of its engine.": "Nome del suo motore.",
  "Name of the model; auto: the first that the server lists.":
    "Nome del modello; auto: il primo indicato dal server.",
  "Names of the tools that the language model may use. Not set: all tools.":
    "Nomi degli strumenti che il modello linguistico può usare. Non impostato: tutti.",
  "Rate of speech of the voice; 1 is normal.": "Velocità della voce; 1 è quella normale.",
  "Reduction of steady noise before speech detection and recognition: none (off), a little, for a microphone near the mouth (near_field), or more, for one across the room (far_field).":
    "Riduzione del rumore costante prima del riconoscimento: nessuna (Spento), lieve, per un microfono vicino alla bocca (vicino), oppure maggiore, per uno dall’altra parte della stanza (lontano).",
  "Sampling temperature of the language model. Not set: the engine's default.":
    "Temperatura di campionamento del modello linguistico. Non impostata: quella del motore.",
  "Sampling temperature. Not set: the server's default.":
    "Temperatura di campionamento. Non impostata: quella del server.",
  "Seconds without a use after which a model is unloaded. The default models and pinned ones stay. 0: a model stays until another one needs its memory.":
    "Secondi senza uso dopo i quali un modello viene tolto dalla memoria. I modelli predefiniti e quelli fissati restano. 0: un modello resta finché un altro non ha bisogno della sua memoria.",
  "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192.":
    "Dimensione del contesto. Non impostata: quella indicata dal server (vLLM, llama.cpp, Ollama), altrimenti 8192.",
  "Speech probability at or above which a frame counts as speech.":
    "Probabilità a partire dalla quale un frammento di audio vale come parlato.",
  "Speech that interrupts an answer that is playing: any speech (on), only meaningful words (patient), only the wake word or a word that means stop (wake_word), or none (off).":
    "Che cosa interrompe una risposta in corso: qualsiasi parlato (Attivo), solo parole sensate (paziente), solo la parola di attivazione o una come «basta» (parola di attivazione o basta) o niente (Spento).",
  "System prompt of the language model. It replaces Earshot's own.":
    "Istruzione di base del modello linguistico. Sostituisce quella di Earshot.",
  "True: an unknown model name is an error (404) that lists the known ones. False: an unknown name means the server's default model. Names of OpenAI's service always mean the default model.":
    "Attivo: un nome di modello sconosciuto è un errore (404) che elenca quelli noti. Spento: un nome sconosciuto indica il modello predefinito del server. I nomi del servizio di OpenAI indicano sempre il modello predefinito.",
  "Voice of the answers: default, a voice, an engine, or engine/voice.":
    "Voce delle risposte: automatica, una voce, un motore, oppure motore/voce.",
  "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow.":
    "Attesa del primo token, nuovo tentativo compreso. Chi aspetta rinuncia prima, ma un modello appena caricato è lento.",
  "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty: sessions listen from the start.":
    "Parola di attivazione, per esempio okay_nabu. Finché non viene rilevata, il parlato è ignorato. Vuota: le sessioni ascoltano dall’inizio.",
  "Whether the chat template itself opens the thought. Text before `</think>` is not spoken then.":
    "Se il template di chat apre da sé il ragionamento. Il testo prima di `</think>` allora non viene pronunciato.",
  "Whether the language model gets Earshot's own system prompt if there is no other. It asks for short spoken answers without markdown, names the date and the room, and is written in the language of the answer.":
    "Se il modello linguistico riceve l’istruzione di Earshot quando non ce n’è un’altra. Chiede risposte parlate brevi senza Markdown, indica la data e la stanza, ed è scritta nella lingua della risposta.",
  "Whether the model may call tools. Off for models that cannot.":
    "Se il modello può usare strumenti. Da spegnere per i modelli che non ne sono capaci.",
  "Whether the model may think before it answers, which takes seconds if it can.":
    "Se il modello può ragionare prima di rispondere. Se ne è capace, ci vogliono alcuni secondi.",
  "Whether the model takes images, which no server announces.":
    "Se il modello accetta immagini. Nessun server lo indica.",
  "Whether to verify the certificate of Home Assistant. False accepts any, such as a self-signed one.":
    "Se verificare il certificato di Home Assistant. Spento: è accettato qualsiasi certificato, anche autofirmato.",
};
